"""Fitted estimators in model files: written and read here, whichever of them it is.

A file may come from anywhere. So before anything is made of it, every part is held against what an
honest one has: the model (`kscn.model`), numbers that are numbers, parameters that the estimator
could have been fitted with.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from kscn.constraints import NUMBER, TEXT, Integer, check_table, require
from kscn.errors import ModelFileError, reason
from kscn.estimators import checks
from kscn.model import FittedModel
from kscn.modelfile import ModelFile
from kscn.nn import network
from kscn.training.driver import OF_THE_RUN

# Samples enough for any parameters.
MANY = 2**62
NUMBERS = {"inertia": NUMBER, "n_iter": Integer(0), "noise_variance": NUMBER}
FACTS = {
    "params": {"n_clusters": Integer(1), "random_state": Integer(0)},
    "fitted": {**NUMBERS, "feature_names": [TEXT]},
}


def write(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator; see `SubspaceClusterer.save`."""
    facts, tensors = estimator._facts()
    fitted = {name: getattr(estimator, f"{name}_") for name in NUMBERS}
    names = getattr(estimator, "feature_names_in_", np.empty(0, object)).tolist()
    described = {
        "params": estimator._params_of_fit | {"random_state": estimator.random_state_},
        "fitted": {**fitted, "feature_names": names, **facts},
    }
    # Of the estimator of kscn, where somebody has derived a class from it.
    own = [cls for cls in type(estimator).__mro__ if cls.__module__.startswith("kscn.")]
    estimator.model_.to_file(path, own[0].__name__, described, tensors)


def params_of_fit(estimator: Any) -> dict[str, Any]:
    """The parameters as a model file keeps them, whatever becomes of the estimator's later.

    What a file cannot hold, a start, a function or a network, becomes the default: prediction does
    not need it.
    """
    defaults = type(estimator)().get_params(deep=False)
    params = without_run(estimator.get_params(deep=False))
    for name, value in params.items():
        if name == "encoder":
            own = estimator.image_encoder_  # None, or a module of the caller's, or found by name
            value = own.name if own is not None and own.network.findable else None
        elif callable(value) or (name == "init" and not isinstance(value, str)):
            value = defaults[name]
        params[name] = copy.deepcopy(value)
    return params


def without_run(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without those of a run.

    A file that holds these could write where its author likes once the model is fitted again.
    """
    return {name: value for name, value in params.items() if name not in OF_THE_RUN}


def read(cls: Any, file: ModelFile, autoencoder: nn.Module | None = None) -> Any:
    """A fitted estimator from its file; `autoencoder` is the user's own network, if it has one."""
    given = None if autoencoder is None else network.build(autoencoder, None, ())
    try:
        estimator = _read(cls, file, given)
    except ModelFileError as error:
        raise ModelFileError(f"{file.path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as e:
        told = reason(str(e)).rstrip(".")
        raise ModelFileError(
            f"{file.path} does not describe a {file.kind} model ({told}); save it again."
        ) from e
    if autoencoder is not None:
        estimator.autoencoder = autoencoder
    return estimator


def _read(cls: Any, file: ModelFile, given: nn.Module | None) -> Any:
    check_table(file.params, FACTS)
    fitted, params = file.params["fitted"], without_run(file.params["params"])
    model = FittedModel.of_file(file, given)
    k, n_features = len(model.assignment.bases), math.prod(model.shape)
    require(params["n_clusters"] == k, f"it has {k} subspaces")
    own = {f"{name}_": fitted[name] for name in NUMBERS} | cls._from_facts(file, model)
    if names := fitted["feature_names"]:
        require(len(names) == n_features, f"it has {len(names)} names of {n_features} features")
        own["feature_names_in_"] = np.array(names, dtype=object)
    estimator = cls(**params)
    own |= {"n_features_in_": n_features, "model_": model, "_params_of_fit": params}
    vars(estimator).update(own, random_state_=checks.seed(params["random_state"]))
    estimator._check_params(MANY, n_features)
    return estimator
