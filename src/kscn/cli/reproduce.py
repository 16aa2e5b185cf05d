"""`kscn reproduce`: measure a table of the paper and print ours beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.cli.summary import score_line
from kscn.cli.terminal import Terminal, duration, table
from kscn.errors import KscnError

if TYPE_CHECKING:
    from kscn.experiments.runner import Cell, Outcome, Reproduction
    from kscn.experiments.tables import Table


@click.command("reproduce", short_help="Measure a table of the paper, ours beside its figures.")
@click.argument("name", metavar="TABLE")
@click.option(
    "--method",
    "methods",
    multiple=True,
    help="A method to measure, may be repeated; by default all of the table that are available.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs per cell."
)
@click.option(
    "--preset",
    default="tuned",
    show_default=True,
    help="Settings of kscn-s and kscn-g: tuned, paper, or a .toml file of your own.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where summaries are written; runs go into reproduce/ inside of it.",
)
def command(name: str, methods: tuple[str, ...], seeds: int, preset: str, out: Path) -> int:
    """Measure TABLE and print our scores beside the paper's.

    TABLE is mnist, fashion, subspace (the 10,000 test images; mnist-test or fashion-mnist-test for
    one half of it), dcn-cae or all. Every finished run is a file: stop at any time, and the same
    command goes on from there. True labels only score.
    """
    from kscn.cli.progress import load_data
    from kscn.experiments import tables
    from kscn.experiments.runner import Reproduction

    found = tables.find(name)
    work = Reproduction(found, methods, preset, seeds, out, load_data)
    terminal = Terminal.of()
    for part in found:
        if missing := work.missing(part):
            terminal.say(f"{part.name}: not available yet, skipped: {', '.join(missing)}")
    failed = _run_all(terminal, work)
    for part in found:
        summaries = work.summarise(part)
        terminal.say()
        for line in table_lines(terminal, part, summaries):
            terminal.say(line)
        for summary in summaries.values():
            terminal.say(f"wrote {work.summary_path(summary)}")
    if failed:
        terminal.say(f"{failed} of {len(work.cells())} runs failed; each said why, above")
    return 2 if failed else 0


def _run_all(terminal: Terminal, work: "Reproduction") -> int:
    """Make every run that is not there yet, with a line for each; how many failed."""
    from kscn.cli.progress import FitProgress

    cells, failed = work.cells(), 0
    for number, cell in enumerate(cells):
        with FitProgress((cell.name, number, len(cells))) as progress:
            try:
                outcome = work.run(cell, [progress])
            except KscnError as error:
                # The other cells can still be measured; a refusal is no reason to lose a night.
                if len(cells) == 1:
                    raise
                failed += 1
                click.echo(f"kscn: {cell.name}: {error}", err=True)
                continue
        terminal.say(_line(cell, outcome))
    return failed


def _line(cell: "Cell", outcome: "Outcome") -> str:
    record = outcome.record
    when = duration(record["seconds"]) if outcome.fresh else "already there"
    again = f", again because of {', '.join(outcome.changed)}" if outcome.changed else ""
    return f"{cell.name}   {score_line(record['scores'])}   {when}{again}"


def table_lines(
    terminal: Terminal, part: "Table", summaries: Mapping[str, dict[str, Any]]
) -> list[str]:
    """The table with ours, mean ± deviation over the seeds, and the paper's, in per cent."""
    from kscn.experiments.tables import SCORES

    lines: list[str] = []
    for dataset, paper in part.rows.items():
        given = [score for score in SCORES if any(score in row for row in paper.values())]
        header = ["method", *map(str.upper, SCORES), "minutes"]
        header += [f"paper {given[0].upper()}", *map(str.upper, given[1:])]
        rows = []
        for method in dict.fromkeys([*paper, *summaries]):
            ours = summaries[method]["datasets"].get(dataset) if method in summaries else None
            theirs = paper.get(method, {})
            rows.append(
                [
                    method,
                    *(_mean(terminal, ours[score]) if ours else "-" for score in SCORES),
                    f"{ours['seconds']['mean'] / 60:.1f}" if ours else "-",
                    *(_paper(theirs, score) for score in given),
                ]
            )
        lines += [
            terminal.style(f"{part.title}: {dataset}", bold=True) + f", per cent{_of(summaries)}",
            *table(header, rows),
            "",
        ]
    return lines


def _of(summaries: Mapping[str, dict[str, Any]]) -> str:
    """Over how many seeds the means are; the same for all methods of one command."""
    counts = {len(d["seeds"]) for s in summaries.values() for d in s["datasets"].values()}
    return "".join(f", {count} seed{'s' if count > 1 else ''}" for count in counts)


def _mean(terminal: Terminal, figures: dict[str, Any]) -> str:
    mean = f"{100 * figures['mean']:.2f}"
    if len(figures["per_seed"]) == 1:
        return mean
    return f"{mean} {'±' if terminal.blocks else '+-'} {100 * figures['std']:.2f}"


def _paper(row: dict[str, Any], score: str) -> str:
    if score not in row:
        return "-"
    return f"~{row[score]:.0f}" if row.get("approximate") else f"{row[score]:.2f}"
