"""A whole fitted model as one module: from samples as they are stored to clusters."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.features import FeatureMap, PCAFeatures, ScaledFeatures, VotedFeatures


class Components(nn.Module):
    """Principal components as a fitted `PCAFeatures` computes them, in float64."""

    shift: Tensor
    matrix: Tensor

    def __init__(self, features: PCAFeatures) -> None:
        super().__init__()
        d = features.n_features_in_  # the map's own rows are filled up with zeros
        self.register_buffer("shift", features._shift[:d].double())
        self.register_buffer("matrix", features._matrix[:, :d].T.double().contiguous())  # (d, k)
        self.unit_norm, self.last = features.unit_norm, features._last

    def forward(self, samples: Tensor) -> Tensor:
        """Components (n, k) of samples (n, *shape)."""
        z = (samples.flatten(1).double() - self.shift) @ self.matrix
        for value in self.last:
            z = nn.functional.pad(z, (0, 1), value=value)
        return (
            nn.functional.normalize(z, eps=float(np.finfo(np.float32).tiny))
            if self.unit_norm
            else z
        )


class WholeModel(nn.Module):
    """Scaling, encoder, latent map and subspaces of a fitted model in a row.

    Residuals are computed in float64, where |z|^2 - |S_i^T z|^2 keeps enough digits for samples
    that lie almost on a subspace; the library repairs those in float32, which takes branches that
    a graph cannot have. The networks of the model are used, not copied.
    """

    bases: Tensor
    shift: Tensor
    offsets: Tensor

    def __init__(self, model: Any) -> None:
        super().__init__()
        fitted = model.model_.at(torch.device("cpu"))
        self.scaling, self.network, self.latent = fitted.scaling, fitted.network, fitted.latent
        self._input = tuple(fitted.shape)
        if self.network is None:
            steps = [] if fitted.features is None else fitted.features.steps
            self.features = nn.Sequential(nn.Flatten(), *map(_module, steps))
        bases = fitted.bases.double()
        self.n_clusters, d, self._p = bases.shape
        self.register_buffer("bases", bases.permute(1, 0, 2).reshape(d, -1))  # (d, k p)
        shift, offsets = torch.zeros(d).double(), torch.zeros(self.n_clusters, d).double()
        if fitted.offsets is not None:
            shift = fitted.shift.double()
            # Orthogonal to the bases, whichever points of the subspaces the model names.
            offsets = fitted.offsets.double() - shift
            offsets = offsets - (bases @ (bases.mT @ offsets[..., None])).squeeze(-1)
        self.register_buffer("shift", shift)
        self.register_buffer("offsets", offsets.T.contiguous())  # (d, k)
        self._temperature = max(fitted.temperature, float(np.finfo(np.float32).tiny))
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
        probability = torch.softmax(-residual / self._temperature, dim=1)
        return residual.argmin(dim=1), residual.to(samples.dtype), probability.to(samples.dtype)

    def _points(self, samples: Tensor) -> Tensor:
        if self.network is None:
            return self.features(samples)
        batch = self.scaling(samples.reshape(-1, *self._input))
        return self.latent(self.network.encode(batch))


def _module(step: FeatureMap) -> nn.Module:
    """One step of features as a module."""
    if isinstance(step, ScaledFeatures):
        return step.module_
    if isinstance(step, VotedFeatures):
        return step.votes_
    if isinstance(step, PCAFeatures):
        return Components(step)
    raise InputError(
        "this model has no network, and scattering features cannot be put into a graph; fit with "
        "refine=True (--refine), or export a model of kscn-s or k-subspaces."
    )
