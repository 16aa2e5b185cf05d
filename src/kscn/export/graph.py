"""A whole fitted model as one module: from samples as they are stored to clusters."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.features import ScatteringMaps
from kscn.model import FittedModel
from kscn.nn.rows import applied


class WholeModel(nn.Module):
    """The steps and the subspaces of a fitted model in a row.

    Residuals are computed in float64, where |z|^2 - |S_i^T z|^2 keeps enough digits for samples
    that lie almost on a subspace; the library repairs those in float32, which takes branches that
    a graph cannot have. The steps of the model are used, not copied.
    """

    bases: Tensor
    shift: Tensor
    offsets: Tensor

    def __init__(self, model: Any) -> None:
        super().__init__()
        fitted: FittedModel = model.model_.to(torch.device("cpu"))
        if any(isinstance(step, ScatteringMaps) for step in fitted.steps):
            raise InputError(
                "this model has no network, and scattering features cannot be put into a graph; "
                "fit with refine=True (--refine), or export a model of kscn-s or k-subspaces."
            )
        self.steps, self._input = fitted.steps, fitted.shape
        found = fitted.assignment.subspaces
        bases = found.bases.double()
        self.n_clusters, d, self._p = bases.shape
        self.register_buffer("bases", bases.permute(1, 0, 2).reshape(d, -1))  # (d, k p)
        shift, offsets = torch.zeros(d).double(), torch.zeros(self.n_clusters, d).double()
        if found.offsets is not None and fitted.assignment.shift is not None:
            shift, offsets = fitted.assignment.shift.double(), found.offsets.double()
            # Orthogonal to the bases, whichever points of the subspaces the model names.
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
        points = samples.reshape(-1, *self._input)
        for step in self.steps:
            points = applied(step, points)
        return points
