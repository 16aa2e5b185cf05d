"""Runs with an encoder on the command line: images come in, and embeddings go to the model."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kscn.cli.rundir import ENCODER, UNFINISHED, Run
from kscn.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from kscn.data import Dataset
    from kscn.features.encoders import Encoder


def open_model(run: Run, encoder: str | None = None, device: str = "auto") -> Any:
    """The model of a run; its encoder is found and checked before any work is done.

    Parameters
    ----------
    run : Run
        The run.
    encoder : str, optional
        Where the encoder is, instead of where it was or its copy in the run.
    device : str
        Where to compute.
    """
    from kscn import load_model
    from kscn.estimators.embedding import encoder_of, has_encoder

    model = load_model(run.model).set_params(device=device)
    if not has_encoder(model):
        if encoder is not None:
            raise InputError(f"{run.path} was fitted without an encoder; leave out --encoder.")
        return model
    found = encoder or copied(run.path)
    if found is not None:
        model.set_params(encoder=found)
    encoder_of(model)
    return model


def embedded(model: Any, loaded: "Dataset") -> "tuple[Any, Dataset]":
    """A model and samples for it: of a run with an encoder, embeddings that stand for images."""
    from kscn.cli.progress import CountProgress
    from kscn.estimators.embedding import encoder_of, has_encoder
    from kscn.features.encoders.source import EmbeddedSource

    if model is None or not has_encoder(model):
        return model, loaded
    with CountProgress("embedding") as progress:
        halves = encoder_of(model).halves(loaded.samples, progress=progress)
    samples = EmbeddedSource(halves, loaded.samples)
    return model.on_embeddings(), replace(loaded, samples=samples)


def resumed_encoder(run: Path, config: dict[str, Any], given: str | None) -> "Encoder | None":
    """The encoder of a run that did not finish, `given` if it was moved; None if it has none."""
    from kscn.estimators.embedding import checked_about, same_encoder

    try:
        about = checked_about(config.get("encoder"))
    except ValueError as error:
        raise ModelFileError(f"{run} cannot go on: {error}; begin anew.") from None
    if about is None:
        if given is not None:
            raise InputError(f"{run} was begun without an encoder; leave out --encoder.")
        return None
    own = copied(run / UNFINISHED) or config["parameters"].get("encoder")
    return same_encoder(given or own, about)


def copy_encoder(encoder: "Encoder", stage: Path) -> None:
    """Put the file of an encoder, and what lies beside it for it, into a run."""
    from kscn.features.encoders.onnxnetwork import OnnxNetwork

    if not isinstance(encoder.network, OnnxNetwork):
        raise InputError(
            f"--copy-encoder needs an .onnx file, and {encoder.name} comes from a library; leave "
            "it out."
        )
    folder = stage / ENCODER
    folder.mkdir(exist_ok=True)
    beside = encoder.network.path.with_suffix(".toml")
    for file in [*encoder.network.files, *([beside] if beside.exists() else [])]:
        shutil.copyfile(file, folder / file.name)


def copied(run: Path) -> str | None:
    """The copy of the encoder in a run, if there is one."""
    found = sorted((run / ENCODER).glob("*.onnx")) if (run / ENCODER).is_dir() else []
    return str(found[0]) if found else None
