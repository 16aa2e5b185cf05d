"""A comparison with the paper as one HTML page that needs nothing else."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from kscn_paper.comparison import WITHIN, Comparison, Row
from kscn_paper.markdown import gap, numbered, ours, paper, time_of
from kscn_paper.tables import SCORES

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
    published, timed = comparison.published, comparison.timed
    notes: dict[str, int] = {}
    rows = [_row(row, published, notes, number, timed) for row in comparison.rows]
    # A page of one table is called so already.
    table = _table(comparison.title, _head(published, timed), rows, unseen=not several)
    parts = ["<section>", table]
    if notes:
        items = "".join(
            f'<li id="note-{number}-{i}">{escape(text)}</li>' for text, i in notes.items()
        )
        parts.append(f'<ol class="notes">{items}</ol>')
    if any(row.runs for row in comparison.rows):
        parts.append(_details(comparison))
    return "\n".join([*parts, "</section>"])


def _table(caption: str, head: str, rows: Sequence[str], unseen: bool) -> str:
    """A table that scrolls by itself on a narrow screen, also with the keyboard."""
    caption, hidden, body = escape(caption), ' class="unseen"' if unseen else "", "\n".join(rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">\n'
        f"<table>\n<caption{hidden}>{caption}</caption>\n"
        f"<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _head(published: Sequence[str], timed: bool) -> str:
    """Two lines: the scores, and below each of them ours, the paper's and the gap."""
    groups = columns = ""
    for score in SCORES:
        rest = ["paper", "gap"] if score in published else []
        span = f'colspan="{1 + len(rest)}"'
        groups += f'<th scope="colgroup" {span} class="first">{score.upper()}</th>'
        columns += '<th scope="col" class="first">ours</th>'
        columns += "".join(f'<th scope="col">{part}</th>' for part in rest)
    both = 'scope="col" rowspan="2"'
    for name in ("minutes", "seeds") if timed else ("seeds",):
        groups += f'<th {both} class="first">{name}</th>'
    return f'<tr><th {both} class="name">method</th>{groups}</tr>\n<tr>{columns}</tr>'


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
    mean, _, spread = ours(row, score).partition(" ")
    spread = f' <span class="spread">{spread}</span>' if spread else ""
    return f'<span class="ours">{mean}</span>{spread}' if row.runs else "-"


def _gap(row: Row, score: str) -> str:
    grade = row.grade(score)
    if grade is None:
        return "-"
    sign, value = gap(row, score).replace("-", "−").split()
    said = f'<span class="unseen"> ({_SAID[grade]})</span>'
    return f'<span class="gap {grade}"><span aria-hidden="true">{sign}</span> {value}{said}</span>'


def _details(comparison: Comparison) -> str:
    """Every single run, folded away."""
    columns = ["method", "seed", *map(str.upper, SCORES), "seconds", "MB", "commit", "date"]
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    head = head.replace("<th", '<th class="name"', 1)
    rows = [_run(row, run) for row in comparison.rows for run in row.runs]
    table = _table(f"Every run: {comparison.title}", f"<tr>{head}</tr>", rows, unseen=True)
    every = "the one run" if len(rows) == 1 else f"all {len(rows)} runs"
    return f"<details><summary>Show {every}</summary>\n{table}\n</details>"


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
