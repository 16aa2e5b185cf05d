"""The data, the model and the encoder of a run, opened as when it was fitted."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kscn.errors import DataError, InputError
from kscn.runs.directory import Run

if TYPE_CHECKING:
    from kscn.data import Dataset, Source
    from kscn.features.encoders import Encoder

Progress = Callable[..., object]


# Data -------------------------------------------------------------------------------------------


def load_like(run: Run, data: str, **options: Any) -> "Dataset":
    """Data with the images prepared as those of a run; see `kscn.data.load`."""
    from kscn.data import load

    preparation = run.preparation()
    # An encoder takes images of any size, also where it was fitted on an array of them.
    any_size = "encoder" in run.config and preparation is None
    return load(data, preparation=preparation, any_size=any_size, **options)


def run_data(run: Run, moved: str | None = None, progress: Progress | None = None) -> "Dataset":
    """The data of a run: the same files, from where they were `moved` if they were."""
    source = run.config["data"]["source"]
    try:
        loaded = load_like(run, moved or source, names=run.names(), progress=progress)
    except DataError as error:
        if moved is not None or Path(source).exists():
            raise
        raise DataError(
            f"the data of {run.path} is no longer at {source} ({str(error).rstrip('.')}); say "
            "where it is with --data."
        ) from None
    check_data(run.config, loaded.samples)
    return loaded


def check_data(config: Mapping[str, Any], samples: "Source") -> None:
    """Refuse samples of another number or shape than those of the run with that config."""
    count, shape = config["data"]["samples"], tuple(config["data"]["shape"])
    if len(samples) != count or tuple(samples.shape) != shape:
        raise DataError(
            f"{samples.name} has {len(samples):,} samples of shape {tuple(samples.shape)} and the "
            f"run was fitted on {count:,} of shape {shape}; give the data of the run."
        )


# Models and encoders ----------------------------------------------------------------------------


def open_model(run: Run, encoder: str | None = None, device: str = "auto") -> Any:
    """The model of a run; its encoder is found and checked before any work is done.

    `encoder` is where that is now, if it is no longer where it was.
    """
    from kscn import load_model
    from kscn.estimators.embedding import encoder_of, has_encoder

    model = load_model(run.model).set_params(device=device)
    if has_encoder(model):
        if encoder is not None:
            model.set_params(encoder=encoder)
        encoder_of(model)
    elif encoder is not None:
        raise InputError(f"{run.path} was fitted without an encoder; leave out --encoder.")
    return model


def resumed_encoder(run: Run, given: str | None) -> "Encoder | None":
    """The encoder of a run that did not finish, `given` if it was moved; None if it has none."""
    from kscn.estimators.embedding import checked_about, same_encoder

    about = checked_about(run.config.get("encoder"))
    if about is not None:
        return same_encoder(given or run.config["parameters"].get("encoder"), about)
    if given is not None:
        raise InputError(f"{run.path} was begun without an encoder; leave out --encoder.")
    return None
