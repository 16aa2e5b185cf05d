"""Fitted estimators in model files: written and read here, whichever of them it is.

A file may come from anywhere. So before anything is made of it, every part is held against what an
honest one has: the model (`kscn.model`), numbers that are numbers, parameters that the estimator
could have been fitted with.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import nn

from kscn import checks
from kscn.constraints import NUMBER, TEXT, Integer, check_table, plain, require
from kscn.errors import InputError, ModelFileError
from kscn.estimators.embedding import plain_encoder
from kscn.features.steps import KINDS
from kscn.model import FittedModel
from kscn.modelfile import ModelFile
from kscn.training.states import OF_THE_RUN

# Samples enough for any parameters.
MANY = 2**62
NUMBERS = {
    "inertia": NUMBER,
    "n_iter": Integer(0),
    "noise_variance": NUMBER,
}
FACTS = {
    "params": {"n_clusters": Integer(1), "random_state": Integer(0)},
    "fitted": {**NUMBERS, "feature_names": [TEXT]},
}


# Writing ------------------------------------------------------------------------------------------


def write(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator; see `SubspaceClusterer.save`."""
    facts, tensors = estimator._facts()
    fitted = {name: plain(getattr(estimator, f"{name}_")) for name in NUMBERS}
    names = getattr(estimator, "feature_names_in_", np.empty(0, object)).tolist()
    described = {
        "params": estimator._params_of_fit | {"random_state": estimator.random_state_},
        "fitted": {**fitted, "feature_names": names, **facts},
    }
    estimator.model_.to_file(path, _kind(type(estimator)), described, tensors)


def _kind(cls: type) -> str:
    """The name of the estimator, also where somebody has derived a class from it."""
    return next(base.__name__ for base in cls.__mro__ if base.__module__.startswith("kscn."))


def params_of_fit(estimator: Any) -> dict[str, Any]:
    """The parameters as a model file keeps them, whatever becomes of the estimator's later.

    What a file cannot hold, a start or a function, becomes the default; prediction needs neither.
    A network of kscn is described, one of the user's own given again to `load_model`.
    """
    defaults = type(estimator)().get_params(deep=False)
    params = without_run(estimator.get_params(deep=False))
    for name, value in params.items():
        if name == "encoder":
            value = plain_encoder(value)
        elif callable(value) or (name == "init" and not isinstance(value, str)):
            value = defaults[name]
        params[name] = plain(value)
    given = getattr(estimator, "autoencoder", None)
    if isinstance(given, nn.Module):
        config = given.config() if type(given) in KINDS else {}  # type: ignore[operator]
        settings = {name: config[name] for name in config if name not in ("shape", "n_features")}
        params["autoencoder"] = KINDS.get(type(given), "auto")
        params["autoencoder_params"] = settings or None
    return params


def without_run(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without those of a run.

    A file that holds these could write where its author likes once the model is fitted again.
    """
    return {name: value for name, value in params.items() if name not in OF_THE_RUN}


# Reading ------------------------------------------------------------------------------------------


def read(cls: Any, file: ModelFile, autoencoder: nn.Module | None = None) -> Any:
    """A fitted estimator from its file, after checking that its parts fit together."""
    with _described(file):
        check_table(file.params, FACTS)
        fitted, params = file.params["fitted"], without_run(file.params["params"])
        model = FittedModel.of_file(file, autoencoder)
        k, n_features = len(model.assignment.bases), math.prod(model.shape)
        require(params["n_clusters"] == k, f"it has {k} subspaces")
        names = fitted["feature_names"]
        require(
            len(names) in (0, n_features), f"it has {len(names)} names of {n_features} features"
        )
        numbers = {f"{name}_": fitted[name] for name in NUMBERS}
        if names:
            numbers["feature_names_in_"] = np.array(names, dtype=object)
        own = cls._from_facts(file, model)
        estimator = cls(**params)
        vars(estimator).update(
            numbers,
            n_features_in_=n_features,
            model_=model,
            random_state_=params["random_state"],
            _params_of_fit=params,
            **own,
        )
        with of_the_file():
            checks.seed(params["random_state"])
            estimator._check_params(MANY, n_features)
    if autoencoder is not None:
        estimator.autoencoder = autoencoder
    return estimator


@contextmanager
def _described(file: ModelFile) -> Iterator[None]:
    """Turn what is wrong with the parts of a model file into one sentence that names the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{file.path}: {error}") from error
    except InputError:  # about what the caller gave beside the file
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
        OverflowError,
    ) as error:
        told = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelFileError(
            f"{file.path} does not describe a {file.kind} model ({told}); save it again."
        ) from error


@contextmanager
def of_the_file() -> Iterator[None]:
    """What is refused here is the fault of the file, not of the caller."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error
