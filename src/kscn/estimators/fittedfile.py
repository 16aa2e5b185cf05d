"""What the model files of all estimators share: the parameters they keep, and what is checked.

A file may come from anywhere. So before anything is made of it, every part is held against what an
honest one has: the types and shapes of arrays, numbers that are numbers, parameters that the
estimator could have been fitted with. What is made then is no larger than the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from kscn.errors import InputError, ModelFileError
from kscn.estimators.embedding import plain_encoder
from kscn.modelfile import ModelFile
from kscn.modelparts import check_array, integer
from kscn.subspaces import Subspaces

EstimatorType = TypeVar("EstimatorType")
# Samples enough for any parameters.
MANY = 2**62
# Parameters that belong to a run and not to its result. A file that holds them could write where
# its author likes once the model is fitted again.
OF_THE_RUN = ("callbacks", "pretrained", "device", "checkpoint_dir", "checkpoint_minutes")


def params_of_fit(estimator: Any) -> dict[str, Any]:
    """The parameters as a model file keeps them, whatever becomes of the estimator's later.

    What a file cannot hold, a start or a function, becomes the default; prediction needs neither.
    A module becomes None.
    """
    defaults = type(estimator)().get_params(deep=False)
    params = {}
    for name, value in estimator.get_params(deep=False).items():
        if name == "encoder":
            value = plain_encoder(value)
        elif name == "init" and not isinstance(value, str):
            value = defaults[name]
        elif callable(value):
            value = None if isinstance(value, nn.Module) else defaults[name]
        params[name] = plain(value)
    return without_run(params)


def without_run(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without those of a run."""
    return {name: value for name, value in params.items() if name not in OF_THE_RUN}


def plain(value: Any) -> Any:
    """Numpy's scalars and arrays, tuples and mappings as what JSON can hold."""
    if value is None or isinstance(value, (str, bool)) or callable(value):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return np.asarray(value).tolist()


def params_in_file(estimator: Any) -> dict[str, Any]:
    """The parameters of the fit, with the seed that was used."""
    return estimator._params_of_fit | {"random_state": estimator.random_state_}


def names_of(estimator: Any) -> list[str]:
    """The names of the features, if they have any."""
    return getattr(estimator, "feature_names_in_", np.empty(0, object)).tolist()


@contextmanager
def described(model: ModelFile) -> Iterator[None]:
    """Turn what is wrong with the parts of a model file into one sentence that names the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{model.path}: {error}") from error
    except InputError:  # about what the caller gave beside the file
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        told = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelFileError(
            f"{model.path} does not describe a {model.kind} model ({told}); save it again."
        ) from error


def rebuilt(
    cls: type[EstimatorType],
    params: Mapping[str, Any],
    state: Mapping[str, Any],
    check: Callable[[Any, int], None],
) -> EstimatorType:
    """An estimator with the parameters of a file and the state that a fit would have left.

    `check` is called with it and a number of samples, and refuses parameters that no fit accepts.
    """
    params = without_run(params)
    integer(params, "random_state", 0, 2**32 - 1)
    estimator = cls(**params)
    vars(estimator).update(state, random_state_=params["random_state"], _params_of_fit=params)
    with of_the_file():
        check(estimator, MANY)
    return estimator


@contextmanager
def of_the_file() -> Iterator[None]:
    """What is refused here is the fault of the file, not of the caller."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def subspaces_of(model: ModelFile, types: tuple[str, ...] = ("float32",)) -> NDArray:
    """The bases (k, d, p) of a file, orthonormal, and as many as it names."""
    bases = model.tensors["subspaces"]
    check_array("subspaces", bases, (None, None, None), types)
    found = Subspaces(torch.from_numpy(bases))
    fault = found.fault(1e-3)
    if fault is not None:
        raise ValueError(fault)
    if model.params["params"]["n_clusters"] != len(bases):
        raise ValueError(f"it has {len(bases)} subspaces")
    dims = model.tensors["subspace_dims"]
    check_array("subspace_dims", dims, (len(bases),), ("int64",))
    if not np.array_equal(dims, found.dims):
        raise ValueError("subspace_dims are not those of its subspaces")
    return bases


def check_weights(like: nn.Module, weights: Mapping[str, NDArray]) -> None:
    """Refuse weights that are not those of a network, of which only the shapes are needed."""
    for name, tensor in like.state_dict().items():
        if name not in weights:
            raise ValueError(f"the array {name!r} is missing")
        dtype = str(tensor.dtype).removeprefix("torch.")
        check_array(f"the array {name!r}", weights[name], tuple(tensor.shape), (dtype,))


def feature_names(facts: Mapping[str, Any], n_features: int) -> dict[str, NDArray]:
    """The state of an estimator that was fitted with names of features, or nothing."""
    names = facts["feature_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("feature_names is no list of names")
    if len(names) not in (0, n_features):
        raise ValueError(f"it has {len(names)} names of {n_features} features")
    return {"feature_names_in_": np.array(names, dtype=object)} if names else {}
