"""`kscn evaluate`: how the clusters of a run agree with known classes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kscn.cli import options
from kscn.cli.loading import data_like, data_of
from kscn.cli.summary import confusion_table, score_line
from kscn.cli.terminal import say, styled
from kscn.errors import InputError
from kscn.runs.directory import Run, read_run
from kscn.runs.table import read_labels

if TYPE_CHECKING:
    import numpy as np


@click.command("evaluate", short_help="Score a run against known classes.")
@options.run
@options.labels
@click.option("--data", help="A data set whose labels are known, instead of --labels.")
@options.as_json
def command(run: Path, labels_path: Path | None, data: str | None, as_json: bool) -> None:
    """Score the labels of RUN by ACC, NMI and ARI and show the aligned confusion matrix.

    Without --labels or --data the labels that came with the data of the run are used.
    """
    from kscn import metrics

    if labels_path is not None and data is not None:
        raise click.UsageError("give --labels or --data, not both")
    opened = read_run(run)
    found = opened.labels()
    if labels_path is not None:
        true = read_labels(labels_path, len(found))
    else:
        true = _labels_of(data, opened)
    scores, confusion = metrics.scores(true, found), metrics.confusion_matrix(true, found)
    if as_json:
        table = {
            "classes": confusion.classes.tolist(),
            "clusters": confusion.clusters.tolist(),
            "counts": confusion.counts.tolist(),
        }
        click.echo(json.dumps({**scores, "samples": len(found), "confusion": table}))
        return
    head = styled(f"{score_line(scores)}   ({len(found):,} samples)", "bold")
    say(head, "", confusion_table(confusion))


def _labels_of(data: str | None, run: Run) -> "np.ndarray":
    skip_broken = run.config["data"].get("skip_broken", False)
    loaded = data_of(run, None) if data is None else data_like(run, data, skip_broken)
    labels, source = loaded.classes, loaded.samples.name
    if labels is None:
        raise InputError(f"{source} has no labels; give the true classes with --labels.")
    n_samples = run.config["data"]["samples"]
    if len(labels) != n_samples:
        raise InputError(
            f"{source} has {len(labels)} labels and {run.path} was fitted on {n_samples} samples; "
            "give the labels of the data that the run was fitted on."
        )
    return labels
