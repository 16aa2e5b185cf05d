"""Fitted estimators in model files: written and read here, whichever of them it is.

A file may come from anywhere. So before anything is made of it, every part is held against what an
honest one has: the types and shapes of arrays, numbers that are numbers, parameters that the
estimator could have been fitted with. What is made then is no larger than the file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from kscn.errors import InputError, ModelFileError
from kscn.estimators.embedding import plain_encoder
from kscn.features import FeatureChain
from kscn.model import SubspaceModel
from kscn.modelfile import ModelFile, write_model
from kscn.modelparts import check_array, integer, number, plain, shape_of
from kscn.nn import (
    ConvEncoder,
    IdentityLatent,
    InputScaling,
    UnitLatent,
    WhitenedLatent,
    network,
)
from kscn.subspaces import Subspaces
from kscn.training.states import OF_THE_RUN

# Samples enough for any parameters.
MANY = 2**62
AFFINE = ("offsets", "shift")  # arrays that only affine subspaces have
KINDS: dict[type[nn.Module], str] = {cls: name for name, cls in network.AUTOENCODERS.items()}


# Writing ------------------------------------------------------------------------------------------


def write(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator; see `SubspaceClusterer.save`."""
    model: SubspaceModel = estimator.model_
    facts, tensors = estimator._facts()
    tensors["subspaces"] = model.bases
    if model.offsets is not None:
        tensors |= {name: getattr(model, name) for name in AFFINE}
    described: dict[str, Any] = {
        "params": estimator._params_of_fit | {"random_state": estimator.random_state_},
        "fitted": {
            "inertia": estimator.inertia_,
            "n_iter": estimator.n_iter_,
            "noise_variance": estimator.noise_variance_,
            "temperature": model.temperature,
            "input_shape": list(model.shape),
            "feature_names": getattr(estimator, "feature_names_in_", np.empty(0, object)).tolist(),
            **facts,
        },
    }
    if model.features is not None:
        described["features"], arrays = model.features.state()
        tensors |= {f"features.{name}": array for name, array in arrays.items()}
    if model.network is not None:
        name, described_network = _described_network(model.network)
        described[name] = described_network
        parts = {name: model.network, "latent": model.latent, "scaling": model.scaling}
        for part, module in parts.items():
            assert module is not None
            tensors |= {f"{part}.{key}": value for key, value in module.state_dict().items()}
    write_model(path, _kind(type(estimator)), described, tensors)


def _kind(cls: type) -> str:
    """The name of the estimator, also where somebody has derived a class from it."""
    return next(base.__name__ for base in cls.__mro__ if base.__module__.startswith("kscn."))


def _described_network(module: nn.Module) -> tuple[str, dict[str, Any]]:
    if isinstance(module, ConvEncoder):
        return "encoder", module.config()
    kind = KINDS.get(type(module), "custom")
    config: dict[str, Any] = {} if kind == "custom" else module.config()  # type: ignore[operator]
    return "autoencoder", {"kind": kind, "name": type(module).__name__, "config": config}


def params_of_fit(estimator: Any) -> dict[str, Any]:
    """The parameters as a model file keeps them, whatever becomes of the estimator's later.

    What a file cannot hold, a start or a function, becomes the default; prediction needs neither.
    A network of kscn is described, one of the user's own given again to `load_model`.
    """
    defaults = type(estimator)()._flat_params()
    params = without_run(estimator._flat_params())
    for name, value in params.items():
        if name == "encoder":
            value = plain_encoder(value)
        elif callable(value) or (name == "init" and not isinstance(value, str)):
            value = defaults[name]
        params[name] = plain(value)
    given = getattr(estimator, "autoencoder", None)
    if isinstance(given, nn.Module):
        config = _described_network(given)[1]["config"]
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
        fitted = file.params["fitted"]
        built = _model(file, fitted, autoencoder)
        n_features = math.prod(built.shape)
        params = without_run(file.params["params"])
        integer(params, "random_state", 0, 2**32 - 1)
        state: dict[str, Any] = {
            "model_": built,
            "inertia_": number(fitted, "inertia"),
            "n_iter_": integer(fitted, "n_iter", 0),
            "noise_variance_": number(fitted, "noise_variance"),
            "n_features_in_": n_features,
            "random_state_": params["random_state"],
            **_feature_names(fitted, n_features),
            **cls._from_facts(file, built),
        }
        estimator = cls._from_flat(**params)
        vars(estimator).update(state, _params_of_fit=params)
        with of_the_file():
            estimator._check_params(MANY, n_features)
    if autoencoder is not None:
        estimator.autoencoder = autoencoder
    return estimator


def _model(file: ModelFile, fitted: Mapping[str, Any], given: nn.Module | None) -> SubspaceModel:
    """The model of a file: its subspaces, and the way from samples to their latents."""
    arrays, bases = file.tensors, _subspaces(file)
    shape = shape_of(fitted)
    width = math.prod(shape)
    model = SubspaceModel(shape)
    model.bases = torch.from_numpy(bases)
    affine = "offsets" in arrays
    if affine != file.params["params"].get("affine", False):
        raise ValueError("affine is not what its subspaces are")
    if affine:
        check_array("offsets", arrays["offsets"], bases.shape[:2])
        check_array("shift", arrays["shift"], bases.shape[1:2])
        model.offsets, model.shift = (torch.from_numpy(arrays[name]) for name in AFFINE)
    model.temperature = number(fitted, "temperature")
    if "features" in file.params:
        config = file.params["features"]
        model.features = FeatureChain.from_state(config, network.part(arrays, "features"))
        if model.features.n_features_in_ != width:
            raise ValueError(f"its features are of other samples than {list(shape)}")
        width = model.features._n_features_out
    if file.params.get("encoder") is not None:
        config, weights = file.params["encoder"], network.part(arrays, "encoder")
        model.network, width = _described_by(ConvEncoder, config, weights, shape)
        model.latent = UnitLatent()
    elif "autoencoder" in file.params:
        weights = network.part(arrays, "autoencoder")
        model.network, codes = _autoencoder(file.params["autoencoder"], given, weights, shape)
        model.latent, width = _latent(network.part(arrays, "latent"), codes)
    elif given is not None:
        raise InputError("this model has no network of yours; open it without autoencoder=.")
    if model.network is not None:
        scaling = network.part(arrays, "scaling")
        model.scaling = InputScaling.of_file(scaling, math.prod(shape))
    if width != bases.shape[1]:
        raise ValueError(
            f"its subspaces lie in {bases.shape[1]} dimensions and its latents in {width}"
        )
    return model.eval()


def _subspaces(file: ModelFile) -> NDArray:
    """The bases (k, d, p) of a file, orthonormal, and as many as it names."""
    bases = file.tensors["subspaces"]
    check_array("subspaces", bases, (None, None, None))
    found = Subspaces(torch.from_numpy(bases))
    fault = found.fault(1e-3)
    if fault is not None:
        raise ValueError(fault)
    if file.params["params"]["n_clusters"] != len(bases):
        raise ValueError(f"it has {len(bases)} subspaces")
    return bases


def _autoencoder(
    described: Mapping[str, Any],
    given: nn.Module | None,
    weights: Mapping[str, Any],
    shape: tuple[int, ...],
) -> tuple[nn.Module, int]:
    """The network with its weights, and the length of its codes of samples of `shape`."""
    kind, name = described["kind"], str(described["name"])[:80]
    if kind != "custom":
        if given is not None:
            raise InputError(f"this model brings its own {name}; open it without autoencoder=.")
        return _described_by(network.AUTOENCODERS[kind], described["config"], weights, shape)
    if given is None:
        raise InputError(
            f"this model was trained with a network of your own, {name}; open it "
            f"with load_model(path, autoencoder={name}(...))."
        )
    module = network.build(given, None, ())
    network.load_weights(module, weights, "the model file")
    return module, network.checked_run(module, torch.zeros(2, *shape))


def _described_by(
    make: Callable[..., Any],
    config: Mapping[str, Any],
    weights: Mapping[str, Any],
    shape: tuple[int, ...],
) -> tuple[nn.Module, int]:
    """A network of kscn with its weights, and the length of its codes."""
    if any(isinstance(value, list) and len(value) > len(weights) for value in config.values()):
        raise ValueError("it has weights for fewer layers than it describes")
    takes = [config["n_features"]] if "n_features" in config else list(config["shape"])
    if takes != list(shape):
        raise ValueError(f"its network takes {takes} and its samples are {list(shape)}")
    module = _filled(lambda: make(**config), weights)
    return module, int(module.latent_dim)  # type: ignore[arg-type]


def _latent(weights: Mapping[str, Any], codes: int) -> tuple[nn.Module, int]:
    """The map from codes of a length to latents, and the length of these."""
    if not weights:
        return IdentityLatent(), codes
    check_array("the weights of its latent", weights["linear.weight"], (None, codes))
    kept = len(weights["linear.weight"])
    return _filled(lambda: WhitenedLatent(codes, kept), weights), kept


def _filled(make: Callable[[], nn.Module], weights: Mapping[str, NDArray]) -> nn.Module:
    """A network with the weights of a file, if they are its own.

    Made without memory first: one that a file only pretends to hold is never allocated.
    """
    with of_the_file():
        with torch.device("meta"):
            like = make()
        for name, tensor in like.state_dict().items():
            if name not in weights:
                raise ValueError(f"the array {name!r} is missing")
            dtype = str(tensor.dtype).removeprefix("torch.")
            check_array(f"the array {name!r}", weights[name], tuple(tensor.shape), (dtype,))
        module = make()
    network.load_weights(module, weights, "the model file")
    return module


def _feature_names(facts: Mapping[str, Any], n_features: int) -> dict[str, NDArray]:
    """The state of an estimator that was fitted with names of features, or nothing."""
    names = facts["feature_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("feature_names is no list of names")
    if len(names) not in (0, n_features):
        raise ValueError(f"it has {len(names)} names of {n_features} features")
    return {"feature_names_in_": np.array(names, dtype=object)} if names else {}


@contextmanager
def _described(file: ModelFile) -> Iterator[None]:
    """Turn what is wrong with the parts of a model file into one sentence that names the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{file.path}: {error}") from error
    except InputError:  # about what the caller gave beside the file
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
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
