"""`kscn info`: what a run is and what it found."""

from pathlib import Path

import click

from kscn.cli import options
from kscn.cli.summary import fact_lines, run_lines
from kscn.cli.terminal import Terminal, printable
from kscn.runs.directory import read_run


@click.command("info", short_help="Show the settings and the result of a run.")
@options.run
def command(run: Path) -> None:
    """Show the settings and the result of RUN, the directory `kscn fit` wrote."""
    from kscn.modelfile import read_model

    opened = read_run(run)
    model = read_model(opened.model) if opened.has_model else None
    about, terminal = opened.config["run"], Terminal.of()
    kept = "none: this method leaves labels only"
    if model is not None:
        size = sum(tensor.nbytes for tensor in model.tensors.values())
        kept = f"{model.kind}, {size / 1024:,.0f} KiB, intact"
    written = f"{about.get('created', '?')} by kscn {about.get('kscn', '?')}"
    settings = {"data": opened.config["data"]["source"], **opened.config["parameters"]}
    width = max(map(len, settings))
    terminal.say(
        *run_lines(terminal, opened.config, opened.result),
        *fact_lines(terminal, {"model": kept, "written": written}),
        "",
        *(printable(f"  {name:<{width}}  {value}") for name, value in settings.items()),
    )
