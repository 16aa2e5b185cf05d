"""`kscn evaluate`: how the clusters of a run agree with known classes."""

import json
from pathlib import Path

import click

from kscn.cli import options
from kscn.cli.loading import fetching
from kscn.cli.summary import confusion_table, score_line
from kscn.cli.terminal import say, styled
from kscn.errors import InputError
from kscn.runs.directory import read_run
from kscn.runs.opened import run_data
from kscn.runs.table import read_labels


@click.command("evaluate", short_help="Score a run against known classes.")
@options.run
@options.labels
@options.data
@options.as_json
def command(run: Path, labels_path: Path | None, data: str | None, as_json: bool) -> None:
    """Score the labels of RUN by ACC, NMI and ARI and show the aligned confusion matrix.

    Without --labels those that came with the data of the run are used.
    """
    from kscn import metrics

    opened = read_run(run)
    labels = opened.labels()
    if labels_path is not None:
        true = read_labels(labels_path, len(labels))
    else:
        loaded = fetching(run_data, opened, data)
        if loaded.classes is None:
            raise InputError(
                f"{loaded.samples.name} has no labels; give the true classes with --labels."
            )
        true = loaded.classes
    scores, confusion = metrics.scores(true, labels), metrics.confusion_matrix(true, labels)
    if as_json:
        counts = {
            "classes": confusion.classes.tolist(),
            "clusters": confusion.clusters.tolist(),
            "counts": confusion.counts.tolist(),
        }
        click.echo(json.dumps({**scores, "samples": len(labels), "confusion": counts}))
        return
    head = styled(f"{score_line(scores)}   ({len(labels):,} samples)", "bold")
    say(head, "", confusion_table(confusion))
