"""What every estimator with subspaces in a latent space keeps of a fit, and does with samples."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from kscn.data import Source
from kscn.estimators import validation as check
from kscn.estimators.fittedfile import params_of_fit
from kscn.estimators.telling import Telling, warn_of_empty
from kscn.subspaces import Subspaces
from kscn.training.alternate import assign
from kscn.training.blocks import Blocks
from kscn.training.distributed import Group


class LatentClusterer(
    Telling, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """Prediction by the nearest of `subspaces_` in the latent space.

    A subclass says how latents are made and what its posteriors are scaled by.
    """

    n_clusters: int
    device: str
    subspaces_: NDArray
    # Set as a fit begins, by `Progress.begin`.
    random_state_: int
    n_iter_: int
    # Not the parameters, which may be set to others after a fit.
    _params_of_fit: dict[str, Any]

    def _new_samples(self, X: Any, group: Group) -> Source:
        """The samples of this process for a new fit; one that fails leaves nothing of the old."""
        source = group.part(check.open_samples(self, X, reset=True))
        for name in ("subspaces_", "labels_"):
            if hasattr(self, name):
                delattr(self, name)
        return source

    @abstractmethod
    def _latent_blocks(self, X: Any) -> Blocks:
        """Latents of new samples, after all checks."""

    @abstractmethod
    def _scale(self) -> float:
        """By what residuals are divided in `predict_proba`."""

    def _keep(self, found: Subspaces, labels: NDArray, inertia: float) -> None:
        """Set what a fit has found as attributes."""
        self._params_of_fit = params_of_fit(self)
        self.labels_ = labels.astype(np.int32)
        self.inertia_ = inertia
        # Latents are float32 whatever the samples are, and products want one precision.
        self.subspaces_ = found.bases.float().cpu().numpy()
        self.subspace_dims_ = found.dims.cpu().numpy()
        free = found.ambient_dim - self.subspace_dims_[self.labels_]
        self.noise_variance_ = inertia / max(1, int(free.sum()))
        self._n_features_out = found.ambient_dim
        warn_of_empty(self.labels_, self.n_clusters, stacklevel=3)

    def transform(self, X: Any) -> NDArray:
        """Latents in which the subspaces are, shape (n, d)."""
        return np.concatenate([z.cpu().numpy() for _, z in self._latent_blocks(X)])

    def predict(self, X: Any) -> NDArray:
        """The nearest subspace of every sample, shape (n,)."""
        return self._nearest(X)[0].numpy().astype(np.int32)

    def residuals(self, X: Any) -> NDArray:
        """Squared distance of every latent to every subspace, shape (n, k)."""
        current = self._current()
        pieces = [current.residuals(z).cpu().numpy() for _, z in self._latent_blocks(X)]
        return np.concatenate(pieces)

    def predict_proba(self, X: Any) -> NDArray:
        """Posterior of every cluster, shape (n, k); the largest is at `predict(X)`.

        Proportional to exp(-residual / t): t is `temperature` where the network was trained with
        the separation loss, and twice the noise variance around the subspaces otherwise.
        """
        residual = self.residuals(X).astype(np.float64)
        least = residual.min(axis=1, keepdims=True)
        odds = np.exp(-(residual - least) / max(self._scale(), np.finfo(np.float32).tiny))
        return odds / odds.sum(axis=1, keepdims=True)

    def score_samples(self, X: Any) -> NDArray:
        """Minus the squared distance of the latent to its subspace, shape (n,): low is odd."""
        return -self._nearest(X)[1].numpy()

    def score(self, X: Any, y: object = None) -> float:
        """Minus the sum of squared distances to the nearest subspace."""
        return float(self.score_samples(X).astype(np.float64).sum())

    def _nearest(self, X: Any) -> tuple[Tensor, Tensor]:
        labels, distance = assign(self._latent_blocks(X), self._current())[:2]
        return labels.cpu(), distance.cpu()

    def _current(self) -> Subspaces:
        check_is_fitted(self, "subspaces_")
        return Subspaces(torch.from_numpy(self.subspaces_).to(check.device(self.device)))
