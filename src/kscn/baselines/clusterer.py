"""What methods without an affinity share: checks, the history, centres that label new samples."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from kscn.data import Source
from kscn.data.source import OnDevice
from kscn.errors import InputError
from kscn.estimators import validation as check
from kscn.estimators.labels import canonical_order
from kscn.estimators.telling import Telling, warn_of_empty
from kscn.training.blocks import Blocks, check_finite, working_dtype
from kscn.training.device import CPU

if TYPE_CHECKING:
    from typing_extensions import Self

Callbacks = Iterable[Callable[[Any, dict[str, Any]], object]]
# Samples that are compared with all centres at once.
ROWS = 4096


class Clusterer(Telling, ClusterMixin, BaseEstimator, ABC):
    """A clustering method with a seed, a history and callbacks.

    A subclass does its work in `_fit`, which sets `labels_`; its constructor has at least
    `n_clusters`, `device`, `random_state` and `callbacks`.
    """

    # Argument -> least value, or -> [low, high).
    _integers: ClassVar[dict[str, int]] = {}
    _numbers: ClassVar[dict[str, tuple[float, float]]] = {}

    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Samples of shape (n, d), or images (n, h, w) or (n, c, h, w).
        y : ignored
        """
        source = check.open_samples(self, X, reset=True)
        if hasattr(self, "labels_"):
            del self.labels_  # a fit that fails leaves no mixture of the old model and the new
        self._check_settings(source)
        self.random_state_ = check.seed(self.random_state)
        self.history_: list[dict[str, Any]] = []
        self._began = time.perf_counter()
        refuse_equal(source)
        self._fit(source)
        warn_of_empty(self.labels_, self.n_clusters, stacklevel=2)
        return self

    @abstractmethod
    def _fit(self, source: Source) -> None:
        """Cluster the samples and set `labels_`."""

    def fit_predict(self, X: Any, y: object = None) -> NDArray:
        """Fit and return `labels_`."""
        return self.fit(X).labels_

    def _check_settings(self, source: Source) -> None:
        for name, least in {"n_clusters": 1, **self._integers}.items():
            check._integer(name, getattr(self, name), least)
        for name, (low, high) in self._numbers.items():
            check._number(name, getattr(self, name), low, high)
        check._callbacks(self.callbacks)
        check.device(self.device)
        if len(source) < self.n_clusters:
            raise InputError(
                f"n_samples={len(source)} should be >= n_clusters={self.n_clusters}; give more "
                "samples or ask for fewer clusters."
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


class CentreClusterer(Clusterer):
    """A method whose clusters are the samples nearest to centres, in some map of them."""

    @abstractmethod
    def _find_centres(self, source: Source) -> NDArray:
        """The centres (k, m)."""

    @abstractmethod
    def _features(self, source: Source) -> Source:
        """Samples as they are compared with centres, (n, m)."""

    def _fit(self, source: Source) -> None:
        """Centres, numbered by falling size, and labels that are exactly what `predict` says."""
        centres = self._find_centres(source)
        features = self._features(source)
        for _ in range(2):  # renumbering can tip a tie and with it a size; see KSubspaces
            labels, distance = nearest_centre(features, centres)
            order = canonical_order(labels, self.n_clusters)
            if (order == np.arange(self.n_clusters)).all():
                break
            centres = centres[order]
        else:
            labels, distance = nearest_centre(features, centres)
        self.cluster_centers_ = centres
        self.inertia_ = float(distance.sum())
        self.labels_ = labels

    def predict(self, X: Any) -> NDArray:
        """The nearest centre of every sample, shape (n,)."""
        return nearest_centre(self._features(self._opened(X)), self.cluster_centers_)[0]

    def _opened(self, X: Any) -> Source:
        check_is_fitted(self, "labels_")
        return check.open_samples(self, X, reset=False)


def nearest_centre(features: Source, centres: NDArray) -> tuple[NDArray, NDArray]:
    """The nearest centre of every sample (n,) and the squared distance to it (n,).

    Differences are squared in float64 rather than expanded into products, so that a sample's label
    does not depend on the samples that are read with it.
    """
    device = features.device if isinstance(features, OnDevice) else CPU
    k_centres = torch.from_numpy(centres).double().to(device)
    labels = np.empty(len(features), dtype=np.int32)
    distance = np.empty(len(features))
    for start, z in Blocks(features, torch.float64, device, batch_size=ROWS):
        check_finite(z.square().sum(dim=1), z, features.name)
        apart = torch.cdist(z, k_centres, compute_mode="donot_use_mm_for_euclid_dist")
        nearest, label = apart.min(dim=1)
        labels[start : start + len(z)] = label.cpu().numpy()
        distance[start : start + len(z)] = nearest.square().cpu().numpy()
    return labels, distance


def flat_samples(source: Source) -> NDArray:
    """All samples as one finite array (n, d), in float32 where that holds the stored values."""
    blocks = Blocks(source, working_dtype(source.dtype), CPU)
    out = torch.empty(len(blocks), blocks.dim, dtype=blocks.dtype)
    for start, z in blocks:
        check_finite(z.square().sum(dim=1), z, source.name)
        out[start : start + len(z)] = z
    return out.numpy()


def refuse_equal(source: Source) -> None:
    """Refuse samples that are all the same; one that differs ends the reading."""
    first = source[:1]
    for _, rows in source.batches(ROWS):
        if (rows != first).any():  # also NaN, which is refused by a name of its own later
            return
    raise InputError(
        f"All {len(source)} sample(s) of {source.name} are equal; there is nothing to cluster."
    )
