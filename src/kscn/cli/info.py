"""`kscn info`: what a run is and what it found."""

from pathlib import Path

import click

from kscn.cli.rundir import read_run
from kscn.cli.summary import run_lines
from kscn.cli.terminal import Terminal


@click.command("info", short_help="Show the settings and the result of a run.")
@click.argument("run", type=click.Path(path_type=Path))
def command(run: Path) -> None:
    """Show the settings and the result of RUN, the directory `kscn fit` wrote."""
    from kscn.modelfile import read_model

    opened = read_run(run)
    model = read_model(opened.model)
    about, data, terminal = opened.config["run"], opened.config["data"], Terminal.of()
    for line in run_lines(terminal, data["name"], data["samples"], data["shape"], opened.result):
        terminal.say(line)
    size = sum(tensor.nbytes for tensor in model.tensors.values())
    terminal.say(f"  model      {model.kind}, {size / 1024:,.0f} KiB, intact")
    terminal.say(f"  written    {about['created']} by kscn {about['kscn']}")
    terminal.say()
    for name, value in {"data": data["source"], **opened.config["parameters"]}.items():
        terminal.say(f"  {name:<12}  {value}")
