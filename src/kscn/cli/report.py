"""`kscn report`: one page that shows what a run found."""

from pathlib import Path

import click

from kscn.atomicfile import atomic_file
from kscn.cli import options
from kscn.cli.loading import embedded, fetching, known_scores
from kscn.cli.terminal import say
from kscn.extras import require
from kscn.runs.directory import read_run
from kscn.runs.opened import open_model, run_data
from kscn.runs.table import read_labels

REPORT = "report.html"


@click.command("report", short_help="Make a page that shows what a run found.")
@options.run
@options.data
@options.labels
@options.output(f"The page to write; by default {REPORT} in the run directory.")
@options.encoder
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def command(
    run: Path,
    data: str | None,
    labels_path: Path | None,
    output: Path | None,
    encoder: str | None,
    show: bool,
) -> None:
    """Write one HTML page about RUN, the directory `kscn fit` wrote.

    The page is a single file that needs no network: sizes, training curves, a map with the image
    under the pointer, typical and odd members of every cluster, what its subspace means,
    and, where classes are known, the confusion matrix. Classes are those that came with the data,
    or --labels.
    """
    opened = read_run(run)
    labels = opened.labels()
    require("jinja2", "report", "a report")
    require("PIL.Image", "report", "a report")
    output = opened.path / REPORT if output is None else output
    # The place for the page is checked before the work, and torch is imported after it.
    with atomic_file(output) as file:
        import torch

        from kscn.cli.progress import working
        from kscn.report.contents import RunFacts, collect
        from kscn.report.page import render

        model, loaded = embedded(open_model(opened, encoder), fetching(run_data, opened, data))
        facts = RunFacts(opened.config, opened.history, labels, model)
        true = loaded.classes if known_scores(loaded, labels) else None
        if labels_path is not None:
            true = read_labels(labels_path, len(labels))
        with working(f"looking at {len(labels):,} samples"):
            page = render(collect(facts, loaded, true, threads=torch.get_num_threads()))
        file.write(page.encode("utf-8", "replace"))
        size = file.tell()
    advice = "" if show else "; open it in a browser"
    say(f"wrote {output} ({size / 1e6:.1f} MB){advice}", output=output)
    if show:
        click.launch(str(output.absolute()))
