"""A fitted model as one module, from samples as they are stored to clusters and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.estimators.linear import KSubspaces
from kscn.features import (
    FeatureMap,
    PCAFeatures,
    ScaledFeatures,
    ScatteringFeatures,
    VotedFeatures,
)


def noise_scale(model: Any) -> float:
    """The t of `predict_proba`: posteriors are proportional to exp(-residual / t)."""
    if hasattr(model, "model_"):
        scale = float(model.model_.temperature)
    elif getattr(model, "loss", None) == "separation":
        scale = float(model.temperature)
    else:
        scale = 2 * float(model.noise_variance_)
    return max(scale, float(np.finfo(np.float32).tiny))


class Components(nn.Module):
    """Principal components as a fitted `PCAFeatures` computes them, in float64."""

    shift: Tensor
    matrix: Tensor

    def __init__(self, features: PCAFeatures) -> None:
        super().__init__()
        d = features.n_features_in_  # the map's own rows are filled up with zeros
        self.register_buffer("shift", features._shift[:d].double())
        self.register_buffer("matrix", features._matrix[:, :d].T.double().contiguous())  # (d, k)
        self.unit_norm, self.last = features._params_of_fit["unit_norm"], features._last

    def forward(self, samples: Tensor) -> Tensor:
        """Components (n, k) of samples (n, *shape)."""
        z = (samples.flatten(1).double() - self.shift) @ self.matrix
        for value in self.last:
            z = nn.functional.pad(z, (0, 1), value=value)
        return nn.functional.normalize(z, eps=np.finfo(np.float32).tiny) if self.unit_norm else z


class WholeModel(nn.Module):
    """Scaling, encoder, latent map and subspaces of a fitted model in a row.

    Residuals are computed in float64, where |z|^2 - |S_i^T z|^2 keeps enough digits for samples
    that lie almost on a subspace; the library repairs those in float32, which takes branches that
    a graph cannot have.

    Parameters
    ----------
    model : KSCN, KSCNPlus or KSubspaces
        The fitted model; its networks are used, not copied.
    """

    bases: Tensor
    shift: Tensor
    offsets: Tensor

    def __init__(self, model: Any) -> None:
        super().__init__()
        network = getattr(model, "autoencoder_", None) or getattr(model, "encoder_", None)
        self._network = network is not None
        if network is not None:
            self._input = tuple(model._input_shape)
            self.scaling = model.scaling_.to("cpu")
            self.network = network.to("cpu")
            self.latent = model.latent_.to("cpu")
        else:
            self.features = _features(model)
        bases = torch.from_numpy(np.asarray(model.subspaces_, dtype=np.float64))
        self.n_clusters, d, self._p = bases.shape
        self.register_buffer("bases", bases.permute(1, 0, 2).reshape(d, -1))  # (d, k p)
        shift, offsets = torch.zeros(d).double(), torch.zeros(self.n_clusters, d).double()
        if getattr(model, "offsets_", None) is not None:
            shift = model.model_.shift.cpu().double()
            # Orthogonal to the bases, whichever points of the subspaces the model names.
            offsets = torch.from_numpy(model.offsets_.astype(np.float64)) - shift
            offsets = offsets - (bases @ (bases.mT @ offsets[..., None])).squeeze(-1)
        self.register_buffer("shift", shift)
        self.register_buffer("offsets", offsets.T.contiguous())  # (d, k)
        self._scale = noise_scale(model)
        self.eval()

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Label (n,), residuals (n, k) and probabilities (n, k) of samples (n, *shape)."""
        z = self._points(samples).double() - self.shift
        inside = (z @ self.bases).reshape(-1, self.n_clusters, self._p)
        residual = (
            z.square().sum(dim=1, keepdim=True)
            - inside.square().sum(dim=2)
            - 2 * (z @ self.offsets)
            + self.offsets.square().sum(dim=0)
        ).clamp(min=0)  # (n, k)
        probability = torch.softmax(-residual / self._scale, dim=1)
        return residual.argmin(dim=1), residual.to(samples.dtype), probability.to(samples.dtype)

    def _points(self, samples: Tensor) -> Tensor:
        if not self._network:
            return self.features(samples)
        batch = self.scaling(samples.reshape(-1, *self._input))
        return self.latent(self.network.encode(batch))


def _module(step: FeatureMap) -> nn.Module:
    """One step of features as a module."""
    if isinstance(step, ScaledFeatures):
        return step.scaling_
    if isinstance(step, VotedFeatures):
        return step.votes_
    assert isinstance(step, PCAFeatures)
    return Components(step)


def _features(model: Any) -> nn.Module:
    """What leads from samples to the space of the subspaces where there is no network."""
    if isinstance(model, KSubspaces):
        return nn.Flatten()
    steps = list(model.features_.to(torch.device("cpu")).steps)
    if not any(isinstance(step, ScatteringFeatures) for step in steps):
        return nn.Sequential(nn.Flatten(), *(_module(step) for step in steps))
    raise InputError(
        f"this {type(model).__name__} has no network, and scattering features cannot be put into a "
        "graph; fit with refine=True (--refine), or export a model of kscn-s or k-subspaces."
    )
