"""`kscn info`: what a run is and what it found."""

from pathlib import Path

import click

from kscn.cli.rundir import read_run
from kscn.cli.summary import run_lines
from kscn.cli.terminal import Terminal, printable


@click.command("info", short_help="Show the settings and the result of a run.")
@click.argument("run", type=click.Path(path_type=Path))
def command(run: Path) -> None:
    """Show the settings and the result of RUN, the directory `kscn fit` wrote."""
    from kscn.modelfile import read_model

    opened = read_run(run)
    model = read_model(opened.model) if opened.has_model else None
    about, terminal = opened.config["run"], Terminal.of()
    for line in run_lines(terminal, opened.config, opened.result):
        terminal.say(line)
    if model is None:
        terminal.say("  model      none: this method leaves labels only")
    else:
        size = sum(tensor.nbytes for tensor in model.tensors.values())
        terminal.say(f"  model      {model.kind}, {size / 1024:,.0f} KiB, intact")
    terminal.say(
        printable(f"  written    {about.get('created', '?')} by kscn {about.get('kscn', '?')}")
    )
    terminal.say()
    settings = {"data": opened.config["data"]["source"], **opened.config["parameters"]}
    width = max(map(len, settings))
    for name, value in settings.items():
        terminal.say(printable(f"  {name:<{width}}  {value}"))
