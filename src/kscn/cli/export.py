"""`kscn export`: the model of a run as one ONNX graph."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.atomicfile import atomic_file
from kscn.cli.rundata import run_data
from kscn.cli.rundir import Run, read_run
from kscn.cli.terminal import Terminal
from kscn.errors import DataError, InputError

if TYPE_CHECKING:
    import numpy as np

# Samples on which the file is compared with the model before it gets its name.
_COMPARED = 256
_NUMBERS = 2**26  # in all random samples together


@click.command("export", short_help="Write the model of a run as an ONNX file.")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--data", help="The data of the run, if it is no longer where it was.")
def command(run: Path, output: Path, data: str | None) -> None:
    """Write the model of RUN, the directory `kscn fit` wrote, to OUTPUT, a .onnx file.

    The graph takes samples as the data stores them, any number at a time, and gives their label,
    residuals and probabilities. Before it gets its name it is run beside the model on some samples
    of the data, or on random ones where the data is gone.
    """
    if output.suffix.lower() != ".onnx":
        raise InputError(f"{output} should end in .onnx; that is what is written.")
    opened = read_run(run)
    folder = opened.model  # says why there is none, before torch is imported
    with atomic_file(output) as file:
        from kscn import load_model
        from kscn.cli.progress import working
        from kscn.export.onnxfile import INPUT, OUTPUTS, compare, onnx_bytes

        model = load_model(folder)
        samples, dtype, which = _samples(opened, model, data)
        with working("exporting"):
            content = onnx_bytes(model, tuple(opened.config["data"]["shape"]), dtype)
            agreement = compare(content, model, samples)
        file.write(content)
    ties = f" ({agreement.ties} of them ties)" if agreement.ties else ""
    terminal = Terminal.beside(output)
    terminal.say(
        f"wrote {output} ({len(content) / 1e6:.2f} MB): the clusters of {agreement.samples} {which}"
        f"{ties} agree, residuals within {agreement.error:.0e}"
    )
    shape = ", ".join(["n", *map(str, opened.config["data"]["shape"])])
    terminal.say(f"  input   {INPUT} ({shape}), {dtype}")
    terminal.say(f"  output  {', '.join(OUTPUTS)}")


def _samples(run: Run, model: Any, data: str | None) -> "tuple[np.ndarray, Any, str]":
    """What to compare on, the type that holds it, and what it is called."""
    import numpy as np

    from kscn.training.blocks import working_dtype

    shape, count = tuple(run.config["data"]["shape"]), run.config["data"]["samples"]
    own = str(getattr(model, "_dtype", "torch.float32")).removeprefix("torch.")
    try:
        source = run_data(run, data).samples
        if len(source) != count or tuple(source.shape) != shape:
            raise DataError(
                f"{source.name} has {len(source):,} samples of shape {tuple(source.shape)} and the "
                f"run was fitted on {count:,} of shape {shape}; give its data with --data."
            )
    except DataError:
        if data is not None:
            raise
        few = max(1, min(64, _NUMBERS // int(np.prod(shape))))
        drawn = np.random.default_rng(0).random((few, *shape))
        return drawn.astype(own), own, "random samples"
    if not hasattr(model, "_dtype"):  # a network; k-subspaces knows the type it was fitted in
        own = str(working_dtype(source.dtype)).removeprefix("torch.")
    rows = np.random.default_rng(0).choice(count, min(count, _COMPARED), replace=False)
    return source.take(rows), own, "samples"
