"""A comparison with the paper as Markdown."""

import re
from collections.abc import Sequence
from html import escape

from kscn_paper.comparison import WITHIN, Comparison, Row
from kscn_paper.tables import SCORES

# Signs beside colours: Markdown has no colours, and not everybody sees them.
SIGNS = {"above": "▲", "near": "●", "below": "▼"}
LEGEND = (
    f"Per cent; ours is mean ± standard deviation over the seeds. Gap is ours minus the paper's: "
    f"{SIGNS['above']} level or above, {SIGNS['near']} at most {WITHIN:g} points below, "
    f"{SIGNS['below']} further below. Minutes are shown where nothing else ran on the machine."
)


def document(
    title: str, command: str, comparisons: Sequence[Comparison], after: Sequence[str] = ()
) -> str:
    """A Markdown text with one table per data set, which the `command` writes again.

    Lines of Markdown that come `after` end it.
    """
    code = f"`{command}`" if _text(command) == command else f"<code>{_text(command)}</code>"
    lines = [f"# {_text(title)}", "", f"Written by {code}; do not edit. {LEGEND}"]
    for comparison in comparisons:
        if len(comparisons) > 1:
            lines += ["", f"## {_text(comparison.title)}"]
        lines += ["", *_table(comparison)]
    lines += ["", *after] if after else []
    return "\n".join(lines) + "\n"


def _table(comparison: Comparison) -> list[str]:
    published = comparison.published
    header = ["method"]
    for score in SCORES:
        header.append(score.upper())
        header += ["paper", "gap"] if score in published else []
    header += [*(["minutes"] if comparison.timed else []), "seeds"]
    lines = [table_line(header), table_line([":--", *["--:"] * (len(header) - 1)])]
    numbers: dict[str, int] = {}
    for row in comparison.rows:
        marks = ", ".join(map(str, numbered(row, numbers)))
        cells = [_text(row.title) + (f" <sup>{marks}</sup>" if marks else "")]
        for score in SCORES:
            cells.append(ours(row, score))
            cells += [paper(row, score), gap(row, score)] if score in published else []
        cells += [time_of(row)] if comparison.timed else []
        lines.append(table_line([*cells, str(len(row.runs) or "-")]))
    notes = [f"<sup>{number}</sup> {_text(text)}  " for text, number in numbers.items()]
    return [*lines, "", *notes] if notes else lines


def table_line(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Text that means nothing in Markdown or in HTML, which Markdown lets through."""
    line = escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`\[\]|])", r"\\\1", line)


def ours(row: Row, score: str, sign: str = "±") -> str:
    """`91.7 ± 3.1`, without a deviation for one run, `-` for none."""
    figures = row.ours(score)
    if figures is None:
        return "-"
    mean, deviation = round(figures[0], 1) + 0.0, figures[1]  # no minus before a zero
    return f"{mean:.1f} {sign} {deviation:.1f}" if len(row.runs) > 1 else f"{mean:.1f}"


def paper(row: Row, score: str) -> str:
    """The paper's figure as it gives it."""
    if score not in row.paper:
        return "-"
    value = row.paper[score]
    return f"~{value:.0f}" if row.paper.get("approximate") else f"{value:.2f}"


def gap(row: Row, score: str) -> str:
    """`▲ +4.6`, `-` where there is nothing to compare."""
    value, grade = row.gap(score), row.grade(score)
    return "-" if value is None or grade is None else f"{SIGNS[grade]} {value:+.1f}"


def minutes(row: Row) -> str:
    """The mean time of a run, `-` where none was kept."""
    seconds = row.figures["seconds"]["mean"] if row.runs else 0
    return f"{seconds / 60:.1f}" if seconds else "-"


def time_of(row: Row) -> str:
    """The mean time of a run where nothing else was going on, else nothing."""
    return minutes(row) if row.quiet else "-"


def numbered(row: Row, numbers: dict[str, int]) -> list[int]:
    """The numbers of a row's notes; one that another row has already keeps its number."""
    return [numbers.setdefault(text, len(numbers) + 1) for text in notes(row)]


def notes(row: Row) -> list[str]:
    """What is to be said about a row that was measured, a sentence each."""
    if not row.runs:
        return []
    parts = [row.remark] if row.remark else []
    parts += dict.fromkeys(run["from"] for run in row.runs if "from" in run)
    if row.left_out:
        runs = "1 run" if row.left_out == 1 else f"{row.left_out} runs"
        parts.append(f"{runs} with other settings than the newest left out.")
    cached = sum(bool(run.get("pretrained_in_cache")) for run in row.runs)
    if cached and row.quiet:
        of = "" if cached == len(row.runs) else f" in {cached} of {len(row.runs)} runs"
        parts.append(f"The time is without pretraining{of}: the network was in the cache.")
    return parts
