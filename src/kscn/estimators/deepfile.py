"""A fitted `KSCN` on disk: its network, latent map, scaling and subspaces in one model file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.estimators import fittedfile as saved
from kscn.estimators import network
from kscn.estimators import validation as check
from kscn.estimators.presets.derive import AUTO, OPEN
from kscn.modelfile import ModelFile, write_model
from kscn.modelparts import check_array, integer, number, shape_of
from kscn.nn import (
    ConvAutoencoder,
    DenseAutoencoder,
    IdentityLatent,
    InputScaling,
    WhitenedLatent,
)

EstimatorType = TypeVar("EstimatorType")
# Settings that may be networks, functions or arrays; of the network, the file holds what it is.
NOT_SAVED = {"autoencoder", "autoencoder_params", "augment", "init"}
KINDS: dict[type[nn.Module], str] = {ConvAutoencoder: "cae", DenseAutoencoder: "sae"}


def write_deep(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted KSCN; see `KSCN.save`."""
    module: nn.Module = estimator.autoencoder_
    kind = KINDS.get(type(module), "custom")
    config: dict[str, Any] = {} if kind == "custom" else module.config()  # type: ignore[operator]
    params = saved.params_in_file(estimator)
    if params["autoencoder"] is None:  # a module: named, or given again to load_model
        params["autoencoder"] = "auto" if kind == "custom" else kind
        settings = {name: config[name] for name in config if name not in ("shape", "n_features")}
        params["autoencoder_params"] = settings or None
    described = {
        "params": params,
        "autoencoder": {"kind": kind, "name": type(module).__name__, "config": config},
        "fitted": {
            "inertia": estimator.inertia_,
            "n_iter": estimator.n_iter_,
            "noise_variance": estimator.noise_variance_,
            "n_features_in": estimator.n_features_in_,
            "input_shape": list(estimator._input_shape),
            "settings": {
                name: saved.plain(value)
                for name, value in estimator.settings_.items()
                if name not in NOT_SAVED
            },
            "feature_names": saved.names_of(estimator),
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
    with saved.described(model):
        given, fitted, arrays = model.params["params"], model.params["fitted"], model.tensors
        bases, shape = saved.subspaces_of(model), shape_of(fitted)
        weights = network.part(arrays, "autoencoder")
        module, codes = _module(model, autoencoder, weights, shape)
        latent, width = _latent(network.part(arrays, "latent"), codes)
        if width != bases.shape[1]:
            raise ValueError(
                f"its subspaces lie in {bases.shape[1]} dimensions and its latents in {width}"
            )
        n_features = integer(fitted, "n_features_in", 1)
        if n_features != math.prod(shape):
            raise ValueError(f"its samples have {n_features} features and the shape {list(shape)}")
        state: dict[str, Any] = {
            "autoencoder_": module,
            "latent_": latent.eval(),
            "scaling_": InputScaling.of_file(network.part(arrays, "scaling"), n_features),
            "settings_": _settings(fitted.get("settings", given)),
            "subspaces_": bases,
            "subspace_dims_": arrays["subspace_dims"],
            "_input_shape": shape,
            "_n_features_out": width,
            "inertia_": number(fitted, "inertia"),
            "n_iter_": integer(fitted, "n_iter", 0),
            "noise_variance_": number(fitted, "noise_variance"),
            "n_features_in_": n_features,
        }
        state |= saved.feature_names(fitted, n_features)
        _settings(given)  # the model may be fitted again by them
        estimator = saved.rebuilt(cls, given, state, check.deep_parameters)
    if autoencoder is not None:
        vars(estimator)["autoencoder"] = autoencoder
    return estimator


def _settings(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the fit used, as far as it is saved; "auto" where a file says nothing of it."""
    settings = {name: found.get(name, AUTO) for name in OPEN if name not in NOT_SAVED}
    with saved.of_the_file():
        check.deep_settings(settings)
    return settings


def _module(
    model: ModelFile,
    given: nn.Module | None,
    weights: Mapping[str, Any],
    shape: tuple[int, ...],
) -> tuple[nn.Module, int]:
    """The network with its weights, and the length of its codes of samples of `shape`."""
    described = model.params["autoencoder"]
    kind, name = described["kind"], str(described["name"])[:80]
    if kind == "custom":
        if given is None:
            raise InputError(
                f"this model was trained with a network of your own, {name}; open it "
                f"with load_model(path, autoencoder={name}(...))."
            )
        module = network.build(given, None, ())
        network.load_weights(module, weights, "the model file")
        return module, network.checked_run(module, torch.zeros(2, *shape))
    if given is not None:
        raise InputError(f"this model brings its own {name}; open it without autoencoder=.")
    make, config = network.AUTOENCODERS[kind], described["config"]
    if any(isinstance(value, list) and len(value) > len(weights) for value in config.values()):
        raise ValueError("it has weights for fewer layers than it describes")
    takes = [config["n_features"]] if "n_features" in config else list(config["shape"])
    if takes != list(shape):
        raise ValueError(f"its network takes {takes} and its samples are {list(shape)}")
    with saved.of_the_file():
        # Without memory first: a network that a file only pretends to hold is never allocated.
        with torch.device("meta"):
            like = make(**config)
        saved.check_weights(like, weights)
        module = make(**config)
    network.load_weights(module, weights, "the model file")
    return module.eval(), int(module.latent_dim)


def _latent(weights: Mapping[str, Any], codes: int) -> tuple[nn.Module, int]:
    """The map from codes of a length to latents, and the length of these."""
    if not weights:
        return IdentityLatent(), codes
    check_array("the weights of its latent", weights["linear.weight"], (None, codes))
    kept = len(weights["linear.weight"])
    latent = WhitenedLatent(codes, kept)
    saved.check_weights(latent, weights)
    network.load_weights(latent, weights, "the model file")
    return latent, kept


def _stored(value: Tensor) -> Any:
    return value.detach().cpu().contiguous().numpy()
