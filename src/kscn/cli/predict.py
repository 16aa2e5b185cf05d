"""`kscn predict`: the cluster of new samples by the subspaces of a run."""

from pathlib import Path

import click

from kscn.atomicfile import atomic_file
from kscn.cli import options
from kscn.cli.loading import embedded, fetching, say_left_out
from kscn.cli.summary import size_table
from kscn.cli.terminal import say
from kscn.errors import InputError
from kscn.runs.directory import read_run
from kscn.runs.opened import load_like, open_model
from kscn.runs.table import write_labels


@click.command("predict", short_help="Assign new samples to the subspaces of a run.")
@options.run
@click.argument("data")
@options.device
@options.output(
    "The .csv file to write: a header, then index,label, or file,label for a folder of "
    "images. - is stdout.",
    required=True,
)
@options.encoder
@options.skip_broken
def command(
    run: Path, data: str, device: str, output: Path, encoder: str | None, skip_broken: bool
) -> None:
    """Assign every sample of DATA to a subspace of RUN, the directory `kscn fit` wrote.

    Images in a folder are brought to the size of the run if its own were; a run with an encoder
    takes images of any size.
    """
    if output.exists() and Path(data).exists() and output.samefile(data):
        raise InputError(f"{output} is the data itself; give -o another name.")
    opened = read_run(run)
    # The place for the result is checked before the work, and torch is imported after both.
    with atomic_file(output) as file:
        import numpy as np

        from kscn.cli.progress import working

        model = open_model(opened, encoder, device)
        loaded = fetching(load_like, opened, data, skip_broken=skip_broken)
        say_left_out(loaded)
        model, loaded = embedded(model, loaded)
        samples = loaded.samples
        with working(f"assigning {len(samples):,} samples"):
            labels = model.predict(samples)
        write_labels(file, labels, samples.names)
    sizes = np.bincount(labels, minlength=model.n_clusters).tolist()
    say(*size_table(sizes), f"wrote {len(labels):,} labels to {output}", output=output)
