"""`kscn data`: the data sets that go by name."""

import click

from kscn.cli.terminal import Terminal, table


@click.group("data")
def command() -> None:
    """List and fetch the data sets that go by name."""


@command.command("list")
def list_command() -> None:
    """Show every named data set and where it would come from."""
    from kscn.data.catalog import describe

    terminal = Terminal.of()
    rows = [
        [
            entry.name,
            f"{entry.samples:,}",
            " x ".join(map(str, entry.shape)),
            str(entry.classes),
            "ready" if entry.cached else "to fetch",
            entry.origin,
        ]
        for entry in describe()
    ]
    # The origin is text of any length, so it follows the table instead of being a column of it.
    lines = table(
        ["name", "samples", "shape", "classes", "state"], [row[:-1] for row in rows], indent=""
    )
    for line, origin in zip(lines, ["from", *(row[-1] for row in rows)], strict=True):
        terminal.say(f"{line:<{max(map(len, lines))}}  {origin}")


@command.command("get")
@click.argument("name")
def get_command(name: str) -> None:
    """Fetch the data set NAME into the cache and print where it is."""
    from kscn.cli.progress import FetchProgress
    from kscn.data.catalog import get

    with FetchProgress() as progress:
        path = get(name, progress)
    click.echo(path)
