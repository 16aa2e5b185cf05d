"""A comparison with the paper as one HTML page that needs nothing else."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from kscn.experiments.comparison import WITHIN, Comparison, Row
from kscn.experiments.markdown import SIGNS, numbered, paper, time_of
from kscn.experiments.tables import SCORES

# What a reader that cannot see the mark is told.
_SAID = {"above": "level or above", "near": "slightly below", "below": "below"}


def document(title: str, command: str, comparisons: Sequence[Comparison]) -> str:
    """The page, with one table per data set; see `markdown.document` for the parameters."""
    template = Template((files(__package__) / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        command=escape(command),
        within=f"{WITHIN:g}",
        body="\n".join(
            _section(number, each, len(comparisons) > 1) for number, each in enumerate(comparisons)
        ),
    )


def _section(number: int, comparison: Comparison, several: bool) -> str:
    title, published = escape(comparison.title), comparison.published
    hidden = "" if several else ' class="unseen"'  # the page is called so already
    notes: dict[str, int] = {}
    timed = comparison.timed
    body = "\n".join(_row(row, published, notes, number, timed) for row in comparison.rows)
    table = (
        f"<table>\n<caption{hidden}>{title}</caption>\n"
        f"<thead>\n{_head(published, timed)}\n</thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )
    parts = ["<section>", _scrolled(table, title)]
    if notes:
        items = "".join(
            f'<li id="note-{number}-{i}">{escape(text)}</li>' for text, i in notes.items()
        )
        parts.append(f'<ol class="notes">{items}</ol>')
    if any(row.runs for row in comparison.rows):
        parts.append(_details(comparison))
    return "\n".join([*parts, "</section>"])


def _scrolled(table: str, label: str) -> str:
    """A table that scrolls by itself on a narrow screen, also with the keyboard."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">\n{table}\n</div>'


def _head(published: Sequence[str], timed: bool) -> str:
    groups, columns = [], []
    for score in SCORES:
        parts = ["ours", "paper", "gap"] if score in published else ["ours"]
        groups.append(
            f'<th scope="colgroup" colspan="{len(parts)}" class="first">{score.upper()}</th>'
        )
        columns += [
            f'<th scope="col"{_first(i)}>{part}</th>' for i, part in enumerate(parts)
        ]  # fmt: skip
    spans = 'rowspan="2"'
    last = "".join(
        f'<th scope="col" {spans} class="first">{name}</th>'
        for name in (*(["minutes"] if timed else []), "seeds")
    )
    return (
        f'<tr><th scope="col" {spans} class="name">method</th>{"".join(groups)}{last}</tr>\n'
        f"<tr>{''.join(columns)}</tr>"
    )


def _row(
    row: Row, published: Sequence[str], notes: dict[str, int], number: int, timed: bool
) -> str:
    links = [f'<a href="#note-{number}-{i}">{i}</a>' for i in numbered(row, notes)]
    mark = f" <sup>{', '.join(links)}</sup>" if links else ""
    preset = f' <span class="tag">{escape(row.preset)}</span>' if row.preset else ""
    cells = [f'<th scope="row">{escape(row.method)}{preset}{mark}</th>']
    for score in SCORES:
        cells.append(f'<td class="first">{_ours(row, score)}</td>')
        if score in published:
            cells += [f"<td>{paper(row, score)}</td>", f"<td>{_gap(row, score)}</td>"]
    cells += [f'<td class="first">{time_of(row)}</td>'] if timed else []
    cells += [f'<td class="first">{len(row.runs) or "-"}</td>']
    return f"<tr>{''.join(cells)}</tr>"


def _ours(row: Row, score: str) -> str:
    figures = row.ours(score)
    if figures is None:
        return "-"
    mean, deviation = figures
    spread = f' <span class="spread">± {deviation:.1f}</span>' if len(row.runs) > 1 else ""
    return f'<span class="ours">{mean:.1f}</span>{spread}'


def _gap(row: Row, score: str) -> str:
    value, grade = row.gap(score), row.grade(score)
    if value is None or grade is None:
        return "-"
    signed = f"{value:+.1f}".replace("-", "−")
    return (
        f'<span class="gap {grade}"><span aria-hidden="true">{SIGNS[grade]}</span> {signed}'
        f'<span class="unseen"> ({_SAID[grade]})</span></span>'
    )


def _details(comparison: Comparison) -> str:
    """Every single run, folded away."""
    columns = ["method", "seed", *map(str.upper, SCORES), "seconds", "MB", "commit", "date"]
    head = "".join(
        f'<th scope="col"{" class=name" if name == "method" else ""}>{name}</th>'
        for name in columns
    )
    runs = [(row, run) for row in comparison.rows for run in row.runs]
    lines = "\n".join(_run(row, run) for row, run in runs)
    label = f"Every run: {comparison.title}"
    table = (
        f'<table>\n<caption class="unseen">{escape(label)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>"
    )
    every = "the one run" if len(runs) == 1 else f"all {len(runs)} runs"
    return (
        f"<details><summary>Show {every}</summary>\n{_scrolled(table, escape(label))}\n</details>"
    )


def _run(row: Row, run: dict[str, Any]) -> str:
    peak = run.get("peak_memory_mb")
    cells = [
        str(run["seed"]),
        *(f"{100 * run['scores'][score]:.2f}" for score in SCORES),
        f"{run['seconds']:.1f}",
        f"{peak:.0f}" if peak else "-",
        escape(str(run.get("commit") or "-")),
        escape(str(run.get("time") or "-")[:10]),
    ]
    data = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(row.title)}</th>{data}</tr>'


def _first(index: int) -> str:
    """The first column of a group has a line before it."""
    return ' class="first"' if index == 0 else ""
