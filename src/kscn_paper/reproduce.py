"""`kscn reproduce`: measure a table of the paper and put ours beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kscn.chosen import duration
from kscn.cli import options
from kscn.cli.summary import score_line
from kscn.cli.terminal import Terminal, complain, table
from kscn.errors import KscnError

if TYPE_CHECKING:
    from kscn_paper.comparison import Comparison
    from kscn_paper.runner import Reproduction
    from kscn_paper.tables import Table

TABLES = "tables"  # the directory of the written tables, inside of that of the summaries
_BESIDE = "ours beside the paper's"
_COLOURS = {"above": "green", "near": "cyan", "below": "yellow"}


@click.command("reproduce", short_help="Measure a table of the paper, ours beside its figures.")
@click.argument("name", metavar="TABLE")
@click.option(
    "--method",
    "methods",
    multiple=True,
    help="A method to measure, may be repeated and need not be in the table; by default all of "
    "the table that are available.",
)
@click.option(
    "--seeds", type=options.COUNT, default=3, help="Runs per cell, with the seeds 0, 1, 2, ..."
)
@click.option(
    "--seed",
    "chosen_seeds",
    type=click.IntRange(min=0),
    multiple=True,
    help="A single seed instead of --seeds, may be repeated.",
)
@click.option(
    "--preset",
    default="tuned",
    help="Settings of kscn-s and kscn-g: tuned, paper, or a .toml file of your own.",
)
@click.option(
    "--out",
    type=options.PATH,
    default=Path("results"),
    help="Where summaries are written; runs go into reproduce/ inside of it, tables into tables/.",
)
@click.option("--no-run", is_flag=True, help="Only write the tables of the runs that are there.")
def command(
    name: str,
    methods: tuple[str, ...],
    seeds: int,
    chosen_seeds: tuple[int, ...],
    preset: str,
    out: Path,
    no_run: bool,
) -> int:
    """Measure TABLE and put our scores beside the paper's.

    TABLE is mnist, fashion, subspace (the 10,000 test images; mnist-test or fashion-mnist-test for
    one half of it), dcn-cae or all. Every finished run is a file: stop at any time, and the same
    command goes on from there. True labels only score. In the end OUT/tables/ has TABLE.md and
    TABLE.html with every finished run that is in OUT.

    \b
    TABLE may also be a .toml file with a table of your own:
      [photos]
      title = "Our photos"                  # optional
      clusters = 20
      [photos.holidays]                     # a name of `kscn data list`, or any name with
      source = "holidays.npz"               # a file beside the table, with labels
      kscn-s = {}                           # a method, and published scores if there are any
      k-means = { acc = 53.0, nmi = 50.0 }
      settings = { k-means = { n_init = 50 } }   # optional: other parameters than the defaults
    """  # noqa: D301 (click wants the backspace itself: keep these lines as they are)
    from kscn.cli.progress import load_data
    from kscn_paper import tables
    from kscn_paper.runner import Reproduction

    found = tables.find(name)
    terminal = Terminal.of()
    failed = 0
    if not no_run:
        work = Reproduction(found, methods, preset, chosen_seeds or range(seeds), out, load_data)
        for part in found:
            if missing := work.missing(part):
                terminal.say(f"{part.name}: not available yet, skipped: {', '.join(missing)}")
        failed = _run_all(terminal, work)
        for part in found:
            for summary in work.summarise(part).values():
                terminal.say(f"wrote {work.summary_path(summary)}")
        if failed:
            terminal.say(f"{failed} of {len(work.cells())} runs failed; each said why, above")
    damaged = _show(terminal, name, found, out, methods)
    if not failed:  # otherwise the measuring has said so already
        for fault in dict.fromkeys(damaged):
            complain(fault)
    return 2 if failed or damaged else 0


# Measuring --------------------------------------------------------------------------------------


def _run_all(terminal: Terminal, work: "Reproduction") -> int:
    """Make every run that is not there yet, with a line for each; how many failed."""
    from kscn.cli.progress import FitProgress

    cells, failed, left = work.cells(), 0, ""
    for number, cell in enumerate(cells):
        with FitProgress((cell.name, number, len(cells), left)) as progress:
            try:
                outcome = work.run(cell, [progress])
            except KscnError as error:
                # The other cells can still be measured; a refusal is no reason to lose a night.
                if len(cells) == 1:
                    raise
                failed += 1
                complain(f"{cell.name}: {error}")
                continue
        seconds, unknown = work.seconds_left(cells[number + 1 :])
        how = "more than" if unknown else "about"
        left = f", {how} {duration(seconds)} left" if seconds else ""
        record = outcome.record
        when = f"{duration(record['seconds'])}" if outcome.fresh else "already there"
        when += f", again because of {', '.join(outcome.changed)}" if outcome.changed else ""
        # What was there already says nothing new about the time, and comes in a quick succession.
        when += left if outcome.fresh else ""
        scores = score_line(record["scores"])
        terminal.say(f"[{number + 1}/{len(cells)}] {cell.name}   {scores}   {when}")
    return failed


# Showing ----------------------------------------------------------------------------------------


def _show(
    terminal: Terminal, name: str, found: Sequence["Table"], out: Path, methods: Sequence[str]
) -> list[str]:
    """Print the tables and write them as Markdown and HTML; what is wrong with files of runs."""
    from kscn_paper import comparison

    everything: list[Comparison] = []
    damaged: list[str] = []
    for part in found:
        comparisons, faults = comparison.compare(part, out, methods)
        damaged += map(str, faults)
        for each in comparisons:
            terminal.say("", *table_lines(terminal, each))
        everything += comparisons
        again = name if name.endswith(".toml") else part.name
        _write(terminal, out / TABLES / part.name, f"{part.title}: {_BESIDE}", again, comparisons)
    if len(found) > 1:
        stem = Path(name).name.removesuffix(".toml")
        _write(terminal, out / TABLES / stem, _BESIDE.capitalize(), name, everything)
    return damaged


def _write(
    terminal: Terminal, place: Path, title: str, name: str, comparisons: Sequence["Comparison"]
) -> None:
    """Write PLACE.md and PLACE.html, which the command on `name` writes again."""
    from kscn_paper import claims, markdown, page
    from kscn_paper.records import check_writable, write_text
    from kscn_paper.tables import ALL

    command = f"kscn reproduce {name}"
    after = claims.section(place.parents[1]) if name == place.name == ALL else []
    texts = {
        "md": markdown.document(title, command, comparisons, after),
        "html": page.document(title, command, comparisons),
    }
    for kind, text in texts.items():
        path = place.with_name(f"{place.name}.{kind}")
        check_writable(path)
        write_text(path, text)
        terminal.say(f"wrote {path}")


def table_lines(terminal: Terminal, comparison: "Comparison") -> list[str]:
    """The table for a terminal: ours, the paper's, and the gap in accuracy."""
    from kscn_paper import markdown
    from kscn_paper.tables import SCORES

    published = comparison.published
    with_gap = "acc" in published
    sign = "±" if terminal.blocks else "+-"
    theirs = [f"{'' if i else 'paper '}{score.upper()}" for i, score in enumerate(published)]
    header = ["method", "seeds", *map(str.upper, SCORES), "minutes", *theirs]
    rows = []
    for row in comparison.rows:
        gap = row.gap("acc")
        rows.append([
            row.title,
            str(len(row.runs) or "-"),
            *(markdown.ours(row, score, sign=sign) for score in SCORES),
            markdown.minutes(row),
            *(markdown.paper(row, score) for score in published),
            *(["-" if gap is None else f"{gap:+.1f}"] if with_gap else []),
        ])  # fmt: skip
    head, *lines = table([*header, *(["gap"] if with_gap else [])], rows)
    for i, row in enumerate(comparison.rows):
        if grade := row.grade("acc"):
            start, _, gap_in_words = lines[i].rpartition(" ")
            lines[i] = f"{start} {terminal.style(gap_in_words, fg=_COLOURS[grade])}"
    return [terminal.style(comparison.title, bold=True) + ", per cent", head, *lines]
