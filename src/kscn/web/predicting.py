"""A fitted model as the service asks it: label, probability and residual of every sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.errors import InputError
from kscn.export.graph import noise_scale

# Residuals, samples times clusters, that are held at a time.
_AT_ONCE = 2**22


class Predictor:
    """Answers for samples of one shape.

    Parameters
    ----------
    model : KSCN or KSubspaces
        The fitted model.
    shape : tuple of int
        Of one sample.
    white : float, optional
        The value of a white pixel in the data of the model, for images that come as files: by
        default the largest value that a network was fitted on, or 255.
    """

    def __init__(self, model: Any, shape: tuple[int, ...], white: float | None = None) -> None:
        self.shape = tuple(shape)
        self.kind = type(model).__name__
        self.n_clusters = int(model.n_clusters)
        self._model = model
        self._scale = noise_scale(model)
        scaling = getattr(model, "scaling_", None)
        if white is None:
            white = 255.0 if scaling is None else 1 / float(scaling.factor)
        # A factor of 1 / 255 comes back with a rounding error.
        self.white = float(round(white)) if abs(white - round(white)) < 1e-9 * white else white

    def __call__(self, samples: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Label, probability of that label, and squared distance to its subspace, each (n,)."""
        rows = max(1, _AT_ONCE // self.n_clusters)
        blocks = [self._block(samples[i : i + rows]) for i in range(0, len(samples), rows)]
        label, probability, least = (np.concatenate(column) for column in zip(*blocks, strict=True))
        return label, probability, least

    def _block(self, samples: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        with np.errstate(over="ignore", invalid="ignore"):
            residual = np.asarray(self._model.residuals(samples), dtype=np.float64)  # (n, k)
        if not np.isfinite(residual).all():
            raise InputError(
                "the samples hold values too large to compute with; send them in the units of the "
                "data that the model was fitted on."
            )
        label = residual.argmin(axis=1)
        least = residual.min(axis=1)
        odds = np.exp(-(residual - least[:, None]) / self._scale)
        return label, 1 / odds.sum(axis=1), least
