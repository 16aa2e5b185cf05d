"""Data for a fit; the data, the model and the encoder of a run, opened as when it was fitted."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kscn.cli.terminal import complain
from kscn.errors import DataError, InputError, ModelFileError
from kscn.runs.directory import ENCODER, UNFINISHED, Run

if TYPE_CHECKING:
    from kscn.data import Dataset
    from kscn.features.encoders import Encoder

_NAMED = 3  # files on the terminal
# Samples that the spread of columns is looked at on, and the share of it that is too much for one.
_LOOKED_AT, _ALMOST_ALL = 1000, 0.9


# Data -------------------------------------------------------------------------------------------


def open_data(
    data: str, size: int | None = None, skip_broken: bool = False, any_size: bool = False
) -> "Dataset":
    """Open data for a fit; see `kscn.data.load`."""
    from kscn.cli.progress import load_data, working
    from kscn.data import load

    if size is None and not skip_broken:
        return load_data(data, any_size=any_size)
    with working(f"decoding the images of {data}"):
        return load(data, size=size, skip_broken=skip_broken, any_size=any_size)


def new_data(run: Run, data: str, skip_broken: bool = False) -> "Dataset":
    """Other data than that of a run, prepared in the same way."""
    if "encoder" in run.config and run.preparation() is None:  # fitted on an array
        loaded = open_data(data, skip_broken=skip_broken, any_size=True)
    else:
        loaded = load_like(run, data, skip_broken=skip_broken)
    say_left_out(loaded)
    return loaded


def run_data(run: Run, moved: str | None = None) -> "Dataset":
    """The data of a run: the same files, from where they were `moved` if they were."""
    source = run.config["data"]["source"]
    try:
        return load_like(run, moved or source, names=run.names())
    except DataError as error:
        if moved is not None or Path(source).exists():
            raise
        raise DataError(
            f"the data of {run.path} is no longer at {source} ({str(error).rstrip('.')}); say "
            "where it is with --data."
        ) from None


def load_like(run: Run, data: str, **options: Any) -> "Dataset":
    """Open data with the images prepared as those of a run; see `kscn.data.load_like`."""
    from kscn import data as package
    from kscn.cli.progress import FetchProgress

    with FetchProgress() as progress:
        return package.load_like(data, run.preparation(), progress=progress, **options)


def say_left_out(loaded: "Dataset") -> None:
    """Say which files of a folder cannot be read, where they are left out."""
    left_out = getattr(loaded.samples, "left_out", {})
    if left_out:
        named = ", ".join(list(left_out)[:_NAMED])
        named += ", ..." if len(left_out) > _NAMED else ""
        total = len(left_out) + len(loaded.samples)
        complain(f"left out {len(left_out)} of {total} images, which cannot be read: {named}")


def say_what_to_expect(loaded: "Dataset", standardised: bool) -> None:
    """Say what distances between samples go by, where that is hardly what was meant.

    `standardised`: whether the method standardises columns that have different units.
    """
    import numpy as np

    from kscn.report.pictures import is_image
    from kscn.stages.candidates import different_units

    source, shape = loaded.samples, tuple(loaded.samples.shape)
    if len(shape) == 3 and is_image(shape) and 3 in (shape[0], shape[2]):
        complain(
            "these are colour images: if they are photographs, clusters of their pixels go by "
            "colour and layout, not by what they show; pass a pretrained network by --encoder"
        )
    if len(shape) != 1 or shape[0] < 2:
        return
    rows = np.random.default_rng(0).permutation(len(source))[:_LOOKED_AT]
    with np.errstate(all="ignore"):  # numbers that are none are refused by the fit
        values = source.take(np.sort(rows))
        spread = np.nan_to_num(np.var(values, axis=0, dtype=np.float64))
        if standardised and different_units(values):
            return
    largest = int(spread.argmax())
    if spread[largest] > _ALMOST_ALL * spread.sum():
        complain(
            f"{source.feature_names[largest]} has {spread[largest] / spread.sum():.1%} of the "
            "variance, so that distances go by it almost alone; if columns have different units, "
            "divide each by its standard deviation first"
        )


# Models and encoders ----------------------------------------------------------------------------


def open_model(run: Run, encoder: str | None = None, device: str = "auto") -> Any:
    """The model of a run; its encoder is found and checked before any work is done.

    `encoder` is where that is now, instead of where it was or its copy in the run.
    """
    from kscn import load_model
    from kscn.estimators.embedding import encoder_of, has_encoder

    model = load_model(run.model).set_params(device=device)
    if not has_encoder(model):
        if encoder is not None:
            raise InputError(f"{run.path} was fitted without an encoder; leave out --encoder.")
        return model
    found = encoder or _copied(run.path)
    if found is not None:
        model.set_params(encoder=found)
    encoder_of(model)
    return model


def embedded(model: Any, loaded: "Dataset") -> "tuple[Any, Dataset]":
    """A model and samples for it: of a run with an encoder, embeddings that stand for images."""
    from kscn.cli.progress import FitProgress
    from kscn.estimators.embedding import encoder_of, has_encoder
    from kscn.features.encoders.pictures import EmbeddedSource

    if model is None or not has_encoder(model):
        return model, loaded
    with FitProgress() as bar:
        halves = encoder_of(model).halves(loaded.samples, progress=partial(bar.draw, "embed"))
    samples = EmbeddedSource(halves, loaded.samples)
    return model.on_embeddings(), replace(loaded, samples=samples)


def resumed_encoder(run: Run, given: str | None) -> "Encoder | None":
    """The encoder of a run that did not finish, `given` if it was moved; None if it has none."""
    from kscn.estimators.embedding import checked_about, same_encoder

    try:
        about = checked_about(run.config.get("encoder"))
    except ValueError as error:
        raise ModelFileError(f"{run.path} cannot go on: {error}; begin anew.") from None
    if about is None:
        if given is not None:
            raise InputError(f"{run.path} was begun without an encoder; leave out --encoder.")
        return None
    own = _copied(run.path / UNFINISHED) or run.config["parameters"].get("encoder")
    return same_encoder(given or own, about)


def copy_encoder(encoder: "Encoder", stage: Path) -> None:
    """Put the file of an encoder, and what lies beside it for it, into a run."""
    from kscn.features.encoders.onnxnetwork import OnnxNetwork

    if not isinstance(encoder.network, OnnxNetwork):
        raise InputError(
            f"--copy-encoder needs an .onnx file, and {encoder.name} comes from timm; leave it out."
        )
    folder = stage / ENCODER
    folder.mkdir(exist_ok=True)
    beside = encoder.network.path.with_suffix(".toml")
    for file in [*encoder.network.files, *([beside] if beside.exists() else [])]:
        shutil.copyfile(file, folder / file.name)


def _copied(run: Path) -> str | None:
    """The copy of the encoder in a run, if there is one."""
    return next((str(file) for file in sorted((run / ENCODER).glob("*.onnx"))), None)
