"""A fitted `KSCNPlus` on disk: features, encoder, scaling and subspaces in one model file."""

from __future__ import annotations

import math
import os
from typing import Any, TypeVar

import torch

from kscn.estimators import fittedfile as saved
from kscn.estimators import network
from kscn.estimators import validation as check
from kscn.estimators.embedding import checked_about
from kscn.features import FeatureChain
from kscn.modelfile import ModelFile, write_model
from kscn.modelparts import integer, number, shape_of
from kscn.nn import ConvEncoder, InputScaling, UnitLatent

EstimatorType = TypeVar("EstimatorType")
# Parameters that older files hold and that are chosen now.
FORMER = ("components", "whiten", "subspace_dim")
# What was fitted that goes into the manifest as it is; the last three say what was chosen.
FACTS = (
    "inertia_",
    "n_iter_",
    "noise_variance_",
    "n_features_in_",
    "subspace_dim_",
    "confidence_",
    "chosen_",
)


def write_plus(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted KSCNPlus; see `KSCNPlus.save`."""
    features, arrays = estimator.features_.state()
    encoder: ConvEncoder | None = estimator.encoder_
    described = {
        "params": saved.params_in_file(estimator),
        "features": features,
        "encoder": None if encoder is None else encoder.config(),
        "image_encoder": estimator._encoder_of_fit,
        "fitted": {
            **{name: saved.plain(getattr(estimator, name)) for name in FACTS},
            "input_shape": list(estimator._input_shape),
            "feature_names": saved.names_of(estimator),
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
    with saved.described(model):
        fitted, arrays = model.params["fitted"], model.tensors
        bases, shape = saved.subspaces_of(model), shape_of(fitted)
        features = FeatureChain.from_state(
            model.params["features"], network.part(arrays, "features")
        )
        n_features = integer(fitted, "n_features_in_", 1)
        if not n_features == math.prod(shape) == features.n_features_in_:
            raise ValueError(f"its samples have {n_features} features and the shape {list(shape)}")
        width = features._n_features_out
        encoder, config = None, model.params["encoder"]
        state: dict[str, Any] = {}
        if config is not None:
            if list(config["shape"]) != list(shape):
                raise ValueError("its encoder takes images of another shape")
            encoder = _encoder(config, network.part(arrays, "encoder"))
            width = encoder.latent_dim
            state["scaling_"] = InputScaling.of_file(network.part(arrays, "scaling"), n_features)
            state["latent_"] = UnitLatent()
        if width != bases.shape[1]:
            raise ValueError(
                f"its subspaces lie in {bases.shape[1]} dimensions and its latents in {width}"
            )
        state |= _chosen(fitted) | {
            "features_": features,
            "encoder_": encoder,
            "image_encoder_": None,
            "_encoder_of_fit": checked_about(model.params.get("image_encoder")),
            "subspaces_": bases,
            "subspace_dims_": arrays["subspace_dims"],
            "_input_shape": shape,
            "_n_features_out": width,
            "inertia_": number(fitted, "inertia_"),
            "n_iter_": integer(fitted, "n_iter_", 0),
            "noise_variance_": number(fitted, "noise_variance_"),
            "n_features_in_": n_features,
        }
        state |= saved.feature_names(fitted, n_features)
        image = len(shape) == 3
        if not isinstance(model.params["params"].get("encoder"), (str, type(None))):
            raise ValueError("its encoder has no name")
        return saved.rebuilt(
            cls,
            {name: v for name, v in model.params["params"].items() if name not in FORMER},
            state,
            lambda estimator, n: check.plus_parameters(estimator, n, image),
        )


def _chosen(fitted: dict[str, Any]) -> dict[str, Any]:
    """What the file says of the clusters that were chosen; older ones know how runs agreed."""
    told = fitted.get("chosen_", "k-subspaces")
    if not isinstance(told, str):
        raise ValueError("chosen_ is no text")
    value = "confidence_" if "confidence_" in fitted else "agreement_"
    return {
        "subspace_dim_": integer(fitted, "subspace_dim_", 0),
        "confidence_": number(fitted, value),
        "chosen_": told[:200],
    }


def _encoder(config: dict[str, Any], weights: dict[str, Any]) -> ConvEncoder:
    """The encoder with its weights; one that a file only pretends to hold is never allocated."""
    with saved.of_the_file():
        with torch.device("meta"):
            like = ConvEncoder(**config)
        saved.check_weights(like, weights)
        encoder = ConvEncoder(**config)
    network.load_weights(encoder, weights, "the model file")
    return encoder.eval()
