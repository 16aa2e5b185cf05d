"""`kscn info`: what a run is and what it found."""

from pathlib import Path

import click

from kscn.cli import options
from kscn.cli.summary import fact_lines, run_summary
from kscn.cli.terminal import say
from kscn.runs.directory import read_run


@click.command("info", short_help="Show the settings and the result of a run.")
@options.run
def command(run: Path) -> None:
    """Show the settings and the result of RUN, the directory `kscn fit` wrote."""
    from kscn.modelfile import read_model

    opened = read_run(run)
    model, about = read_model(opened.model), opened.config["run"]
    size = sum(tensor.nbytes for tensor in model.tensors.values())
    kept = f"{model.kind}, {size / 1024:,.0f} KiB, intact"
    written = f"{about.get('created', '?')} by kscn {about.get('kscn', '?')}"
    settings = {"data": opened.config["data"]["source"], **opened.config["parameters"]}
    width = max(map(len, settings))
    say(
        *run_summary(opened.config, opened.result),
        *fact_lines({"model": kept, "written": written}),
        "",
        *(f"  {name:<{width}}  {value}" for name, value in settings.items()),
    )
