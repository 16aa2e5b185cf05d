"""A fitted `KSCNPlus` on disk: features, encoder, scaling and subspaces in one model file."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import numpy as np
import torch

from kscn.errors import InputError, ModelFileError
from kscn.estimators import network
from kscn.estimators.deepfile import plain
from kscn.features import FeatureChain
from kscn.modelfile import ModelFile, write_model
from kscn.nn import ConvEncoder, InputScaling, UnitLatent
from kscn.subspaces import Subspaces

EstimatorType = TypeVar("EstimatorType")
# Fitted numbers that go into the manifest as they are.
FACTS = (
    "inertia_",
    "n_iter_",
    "noise_variance_",
    "n_features_in_",
    "agreement_",
    "components_",
    "whiten_",
    "subspace_dim_",
)


def write_plus(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted KSCNPlus; see `KSCNPlus.save`."""
    params = estimator.get_params(deep=False)
    for name in ("callbacks", "device", "checkpoint_dir", "checkpoint_minutes"):  # of the run
        del params[name]
    params["random_state"] = estimator.random_state_
    if callable(params["augment"]):
        params["augment"] = "elastic"  # a function cannot be saved, and prediction does not need it
    features, arrays = estimator.features_.state()
    encoder: ConvEncoder | None = estimator.encoder_
    described = {
        "params": {name: plain(value) for name, value in params.items()},
        "features": features,
        "encoder": None if encoder is None else encoder.config(),
        "fitted": {
            **{name: plain(getattr(estimator, name)) for name in FACTS},
            "input_shape": list(estimator._input_shape),
            "feature_names": getattr(estimator, "feature_names_in_", np.empty(0, object)).tolist(),
        },
    }
    tensors: dict[str, Any] = {
        "subspaces": estimator.subspaces_,
        "subspace_dims": estimator.subspace_dims_,
    }
    tensors |= {f"features.{name}": array for name, array in arrays.items()}
    if encoder is not None:
        for name, part in {"encoder": encoder, "scaling": estimator.scaling_}.items():
            tensors |= {
                f"{name}.{key}": value.detach().cpu().contiguous().numpy()
                for key, value in part.state_dict().items()
            }
    write_model(path, "KSCNPlus", described, tensors)


def read_plus(cls: type[EstimatorType], model: ModelFile) -> EstimatorType:
    """A fitted KSCNPlus from its file, after checking that its parts fit together."""
    try:
        fitted, arrays = model.params["fitted"], model.tensors
        estimator = cls(**model.params["params"])
        bases = arrays["subspaces"]
        state: dict[str, Any] = {name: fitted[name] for name in FACTS}
        state["features_"] = features = FeatureChain.from_state(
            model.params["features"], network.part(arrays, "features")
        )
        width = features._n_features_out
        encoder, config = None, model.params["encoder"]
        if config is not None:
            if list(config["shape"]) != list(fitted["input_shape"]):
                raise ValueError("its encoder takes images of another shape")
            encoder = _encoder(config, network.part(arrays, "encoder"))
            width = encoder.latent_dim
            scale = network.part(arrays, "scaling")
            state["scaling_"] = InputScaling(
                torch.from_numpy(scale["shift"]), float(scale["factor"])
            )
            state["latent_"] = UnitLatent()
        fault = Subspaces(torch.from_numpy(bases)).fault(1e-3)
        if fault is None and model.params["params"]["n_clusters"] != len(bases):
            fault = f"it has {len(bases)} subspaces"
        if fault is None and width != bases.shape[1]:
            fault = f"its subspaces lie in {bases.shape[1]} dimensions and its latents in {width}"
        if fault is not None:
            raise ValueError(fault)
        state |= {
            "encoder_": encoder,
            "subspaces_": bases,
            "subspace_dims_": arrays["subspace_dims"],
            "_input_shape": tuple(fitted["input_shape"]),
            "_n_features_out": bases.shape[1],
            "random_state_": int(model.params["params"]["random_state"]),
        }
        if fitted["feature_names"]:
            state["feature_names_in_"] = np.array(fitted["feature_names"], dtype=object)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, (ModelFileError, InputError)):
            raise
        told = " ".join(str(error).split())[:300]
        raise ModelFileError(
            f"The model file does not describe a KSCNPlus model ({told}); save it again."
        ) from error
    vars(estimator).update(state)
    return estimator


def _encoder(config: dict[str, Any], weights: dict[str, Any]) -> ConvEncoder:
    """The encoder with its weights; one that a file only pretends to hold is never allocated."""
    with torch.device("meta"):
        like = ConvEncoder(**config).state_dict()
    for name, tensor in like.items():
        if name not in weights or tuple(weights[name].shape) != tuple(tensor.shape):
            raise ValueError(f"the weights {name!r} of its encoder are missing or of another shape")
    encoder = ConvEncoder(**config)
    network.load_weights(encoder, weights, "the model file")
    return encoder.eval()
