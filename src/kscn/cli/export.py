"""`kscn export`: the model of a run as one ONNX graph."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.atomicfile import atomic_file
from kscn.cli import options
from kscn.cli.loading import fetching
from kscn.cli.terminal import say
from kscn.errors import DataError, InputError
from kscn.runs.directory import Run, read_run
from kscn.runs.opened import open_model, run_data

if TYPE_CHECKING:
    import numpy as np

    from kscn.export.onnxfile import Agreement

# Samples on which the file is compared with the model before it gets its name.
_COMPARED = 256
_NUMBERS = 2**26  # in all random samples together


@click.command("export", short_help="Write the model of a run as an ONNX file.")
@options.run
@click.argument("output", type=options.PATH)
@options.data
@options.encoder
def command(run: Path, output: Path, data: str | None, encoder: str | None) -> None:
    """Write the model of RUN, the directory `kscn fit` wrote, to OUTPUT, a .onnx file.

    The graph takes samples as the data stores them, any number at a time, and gives their label,
    residuals and probabilities. Before it gets its name it is run beside the model on some samples
    of the data, or on random ones where the data is gone. That of a run with an encoder, an .onnx
    file, is both in one: it takes images as the encoder does, of its size and with mean and
    standard deviation applied, as is printed.
    """
    if output.suffix.lower() != ".onnx":
        raise InputError(f"{output} should end in .onnx; that is what is written.")
    opened = read_run(run)
    with atomic_file(output) as file:
        from kscn.cli.progress import working
        from kscn.estimators.embedding import has_encoder
        from kscn.export.onnxfile import INPUT, OUTPUTS, compare, onnx_bytes

        model = open_model(opened, encoder)
        samples, dtype, which = _samples(opened, model, data)
        with working("exporting"):
            if has_encoder(model):
                content, agreement, takes = _joined(model, samples)
            else:
                shape = tuple(opened.config["data"]["shape"])
                content = onnx_bytes(model, shape, dtype)
                agreement = compare(content, model, samples)
                takes = {"input": f"{INPUT} {_dimensions(shape)}, {dtype}"}
        file.write(content)
    ties = f" ({agreement.ties} of them ties)" if agreement.ties else ""
    say(
        f"wrote {output} ({len(content) / 1e6:.2f} MB): the clusters of {agreement.samples} {which}"
        f"{ties} agree, residuals within {agreement.error:.0e}",
        *(f"  {name:<6}  {line}" for name, line in takes.items()),
        f"  output  {', '.join(OUTPUTS)}",
        output=output,
    )


def _joined(model: Any, samples: "np.ndarray") -> "tuple[bytes, Agreement, dict[str, str]]":
    """The graph of encoder and assignment, how it compares on images, and what it takes."""
    from kscn.estimators.embedding import encoder_of
    from kscn.export.joined import joined_bytes
    from kscn.export.onnxfile import compare
    from kscn.features.encoders.networks import OnnxNetwork

    encoder, inner = encoder_of(model), model.on_embeddings()
    content = joined_bytes(inner, encoder)
    prepared = encoder.prepare(samples)
    embeddings = encoder.run(prepared).astype("float32")
    agreement = compare(content, inner, embeddings, prepared)
    assert isinstance(encoder.network, OnnxNetwork)  # joined_bytes takes no other kind
    name, steps = encoder.network.input.name, encoder.preprocessing
    takes = {
        "input": f"{name} {_dimensions(steps.shape)}, RGB, as the encoder takes them",
        "pixels": f"(value / 255 - {list(steps.mean)}) / {list(steps.std)}",
    }
    return content, agreement, takes


def _dimensions(shape: Iterable[int]) -> str:
    return f"({', '.join(['n', *map(str, shape)])})"


def _samples(run: Run, model: Any, data: str | None) -> "tuple[np.ndarray, str, str]":
    """What to compare on, the type that holds it, and what it is called."""
    import numpy as np

    from kscn import KSubspaces
    from kscn.runtime.blocks import working_dtype

    rng, shape = np.random.default_rng(0), tuple(run.config["data"]["shape"])
    try:
        source = fetching(run_data, run, data).samples
        rows = rng.choice(len(source), min(len(source), _COMPARED), replace=False)
        samples, which = source.take(rows), "samples"
    except DataError:
        if data is not None:
            raise
        few = max(1, min(64, _NUMBERS // int(np.prod(shape))))
        samples, which = rng.random((few, *shape), dtype=np.float32), "random samples"
    known = isinstance(model, KSubspaces)  # which type it was fitted in
    dtype = model.subspaces_.dtype if known else working_dtype(samples.dtype)
    return samples, str(dtype).removeprefix("torch."), which
