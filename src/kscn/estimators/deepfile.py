"""A fitted `KSCN` on disk: its network, latent map, scaling and subspaces in one model file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from kscn.errors import InputError, ModelFileError
from kscn.estimators import network
from kscn.estimators import validation as check
from kscn.estimators.presets.derive import AUTO, OPEN
from kscn.modelfile import ModelFile, write_model
from kscn.nn import (
    ConvAutoencoder,
    DenseAutoencoder,
    IdentityLatent,
    InputScaling,
    WhitenedLatent,
)
from kscn.subspaces import Subspaces

EstimatorType = TypeVar("EstimatorType")
# Settings that may be networks, functions or arrays; of the network, the file holds what it is.
NOT_SAVED = {"autoencoder", "autoencoder_params", "augment", "init"}
# Of one sample: far above any image, and still little to try a network on.
MOST_VALUES = 2**26
KINDS: dict[type[nn.Module], str] = {ConvAutoencoder: "cae", DenseAutoencoder: "sae"}


def write_deep(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted KSCN; see `KSCN.save`."""
    module: nn.Module = estimator.autoencoder_
    kind = KINDS.get(type(module), "custom")
    config: dict[str, Any] = {} if kind == "custom" else module.config()  # type: ignore[operator]
    params = estimator.get_params(deep=False)
    if not isinstance(params["autoencoder"], str):  # a module: named, or given again to load_model
        params["autoencoder"] = "auto" if kind == "custom" else kind
        settings = {name: config[name] for name in config if name not in ("shape", "n_features")}
        params["autoencoder_params"] = settings or None
    of_the_run = ("callbacks", "pretrained", "device", "checkpoint_dir", "checkpoint_minutes")
    for name in of_the_run:
        del params[name]
    params["random_state"] = estimator.random_state_
    if not isinstance(params["init"], str):
        params["init"] = "k-subspaces"
    if callable(params["augment"]):
        params["augment"] = None  # a function cannot be saved, and prediction does not need it
    described = {
        "params": {name: plain(value) for name, value in params.items()},
        "autoencoder": {"kind": kind, "name": type(module).__name__, "config": config},
        "fitted": {
            "inertia": estimator.inertia_,
            "n_iter": estimator.n_iter_,
            "noise_variance": estimator.noise_variance_,
            "n_features_in": estimator.n_features_in_,
            "input_shape": list(estimator._input_shape),
            "settings": {
                name: plain(value)
                for name, value in estimator.settings_.items()
                if name not in NOT_SAVED
            },
            "feature_names": getattr(estimator, "feature_names_in_", np.empty(0, object)).tolist(),
        },
    }
    tensors: dict[str, Any] = {"subspaces": estimator.subspaces_}
    tensors["subspace_dims"] = estimator.subspace_dims_
    parts = {"autoencoder": module, "latent": estimator.latent_, "scaling": estimator.scaling_}
    for name, part in parts.items():
        tensors |= {f"{name}.{key}": _stored(value) for key, value in part.state_dict().items()}
    write_model(path, "KSCN", described, tensors)


def read_deep(
    cls: type[EstimatorType], model: ModelFile, autoencoder: nn.Module | None
) -> EstimatorType:
    """A fitted KSCN from its file, after checking that its parts fit together."""
    try:
        fitted, arrays = model.params["fitted"], model.tensors
        estimator = cls(**model.params["params"])
        shape = fitted["input_shape"]
        if math.prod(shape) > MOST_VALUES:
            raise ValueError(f"its samples have {math.prod(shape)} values")
        weights = network.part(arrays, "autoencoder")
        module, codes = _module(model.params["autoencoder"], autoencoder, weights, shape)
        latent = _latent(network.part(arrays, "latent"))
        scale = network.part(arrays, "scaling")
        scaling = InputScaling(torch.from_numpy(scale["shift"]), float(scale["factor"]))
        bases = arrays["subspaces"]
        latent.eval()
        with torch.no_grad():
            width = latent(torch.zeros(1, codes)).shape[1]
        fault = Subspaces(torch.from_numpy(bases)).fault(1e-3)
        if fault is None and model.params["params"]["n_clusters"] != len(bases):
            fault = f"it has {len(bases)} subspaces"
        if fault is None and width != bases.shape[1]:
            fault = f"its subspaces lie in {bases.shape[1]} dimensions and its latents in {width}"
        if fault is not None:
            raise ValueError(fault)
        state: dict[str, Any] = {
            "autoencoder_": module,
            "latent_": latent,
            "scaling_": scaling,
            "settings_": _settings(fitted.get("settings", model.params["params"])),
            "subspaces_": bases,
            "subspace_dims_": arrays["subspace_dims"],
            "_input_shape": tuple(fitted["input_shape"]),
            "_n_features_out": bases.shape[1],
            "inertia_": float(fitted["inertia"]),
            "n_iter_": int(fitted["n_iter"]),
            "noise_variance_": float(fitted["noise_variance"]),
            "n_features_in_": int(fitted["n_features_in"]),
            "random_state_": int(model.params["params"]["random_state"]),
        }
        if fitted["feature_names"]:
            state["feature_names_in_"] = np.array(fitted["feature_names"], dtype=object)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, (ModelFileError, InputError)):
            raise
        told = " ".join(str(error).split())[:300]
        raise ModelFileError(
            f"The model file does not describe a KSCN model ({told}); save it again."
        ) from error
    if autoencoder is not None:
        state["autoencoder"] = autoencoder
    vars(estimator).update(state)
    return estimator


def _settings(saved: Mapping[str, Any]) -> dict[str, Any]:
    """What the fit used, as far as it is saved; "auto" where a file says nothing of it."""
    settings = {name: saved.get(name, AUTO) for name in OPEN if name not in NOT_SAVED}
    try:
        check.deep_settings(settings)
    except InputError as error:  # the file's fault, not the caller's
        raise ValueError(error) from error
    return settings


def _module(
    described: Mapping[str, Any],
    given: nn.Module | None,
    weights: Mapping[str, Any],
    shape: list[int],
) -> tuple[nn.Module, int]:
    """The network with its weights, and the length of its codes of samples of `shape`."""
    if described["kind"] == "custom":
        if given is None:
            raise InputError(
                f"this model was trained with a network of your own, {described['name']}; open it "
                f"with load_model(path, autoencoder={described['name']}(...))."
            )
        module = network.build(given, None, ())
        network.load_weights(module, weights, "the model file")
        return module, network.checked_run(module, torch.zeros(2, *shape))
    if given is not None:
        raise InputError(
            f"this model brings its own {described['name']}; open it without autoencoder=."
        )
    make, config = network.AUTOENCODERS[described["kind"]], described["config"]
    if any(isinstance(value, list) and len(value) > len(weights) for value in config.values()):
        raise ValueError("it has weights for fewer layers than it describes")
    try:
        # Without memory first: a network that a file only pretends to hold is never allocated.
        with torch.device("meta"):
            like = make(**config)
        _check_shapes(like, weights)
        takes = [config["n_features"]] if "n_features" in config else list(config["shape"])
        if takes != list(shape):
            raise ValueError(f"its network takes {takes} and its samples are {list(shape)}")
        module = make(**config)
    except InputError as error:  # the file's fault, not the caller's
        raise ValueError(error) from error
    network.load_weights(module, weights, "the model file")
    return module.eval(), int(module.latent_dim)


def _check_shapes(like: nn.Module, weights: Mapping[str, Any]) -> None:
    for name, tensor in like.state_dict().items():
        if name not in weights or tuple(weights[name].shape) != tuple(tensor.shape):
            raise ValueError(f"the weights {name!r} are missing or of another shape")


def _latent(weights: Mapping[str, Any]) -> nn.Module:
    if not weights:
        return IdentityLatent()
    kept, width = weights["linear.weight"].shape
    latent = WhitenedLatent(width, kept)
    network.load_weights(latent, weights, "the model file")
    return latent


def _stored(value: Tensor) -> Any:
    return value.detach().cpu().contiguous().numpy()


def plain(value: Any) -> Any:
    """Numpy's scalars and arrays, tuples and mappings as what JSON can hold."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return np.asarray(value).tolist()
