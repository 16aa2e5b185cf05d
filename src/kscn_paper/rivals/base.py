"""The base class of all rivals: shared parameters, the course of a fit, numbers of clusters."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from kscn.constraints import Integer, check_parameters, parameter
from kscn.data import Source
from kscn.errors import InputError
from kscn.estimators import checks as check
from kscn.estimators.base import warn_of_empty
from kscn.runtime.blocks import Blocks, check_finite, working_dtype
from kscn.runtime.group import ALONE
from kscn.runtime.labels import canonical_order


@dataclass(eq=False, repr=False)
class Rival(ClusterMixin, BaseEstimator, ABC):
    """A clustering method with a seed and a history.

    A subclass is a dataclass: its fields are its parameters, besides the fields here, and say what
    they may be. It does its work in `_fit`, which sets `labels_`.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything random.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample, equal to `predict(X)` where there is such a method. Clusters are
        numbered by falling size.
    history_ : list of dict
        What was recorded in the course of the fit, each record with its `stage` and the `seconds`
        since the fit began.
    random_state_, n_features_in_ : int
        The seed used, the number of features.
    """

    n_clusters: int = parameter(8, Integer(1))
    _: KW_ONLY
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Samples of shape (n, d), or images (n, h, w) or (n, c, h, w), which methods without
            convolutions flatten.
        y : ignored
        """
        source, about = check.new_samples(X, ALONE)
        for name in ("feature_names_in_", "n_features_in_"):
            self.__dict__.pop(name, None)
        self.__dict__.update(about)
        if hasattr(self, "labels_"):
            del self.labels_  # a fit that fails leaves no mixture of the old model and the new
        self._check(len(source))
        self.random_state_ = check.seed(self.random_state)
        self.history_: list[dict[str, Any]] = []
        self._began = time.perf_counter()
        check.unequal(source, ALONE)
        self._fit(source)
        warn_of_empty(self.labels_, self.n_clusters, stacklevel=2)
        return self

    @abstractmethod
    def _fit(self, source: Source) -> None:
        """Cluster the samples and set `labels_`."""

    def _check(self, n_samples: int) -> None:
        """Refuse impossible parameters before any work is done."""
        check_parameters(self)
        check.device(self.device)
        if n_samples < self.n_clusters:
            raise InputError(
                f"n_samples={n_samples} should be >= n_clusters={self.n_clusters}; give more "
                "samples or ask for fewer clusters."
            )

    def _record(self, stage: str, **values: Any) -> None:
        """Add a record to the history."""
        seconds = time.perf_counter() - self._began
        self.history_.append({"stage": stage, **values, "seconds": seconds})

    def _opened(self, X: Any) -> Source:
        """New samples for a fitted model."""
        check_is_fitted(self, "labels_")
        return check.known_samples(self, X)


def largest_first(
    parts: NDArray, assign: Callable[[NDArray], tuple[NDArray, Any]]
) -> tuple[NDArray, NDArray, Any]:
    """What makes each cluster (centres, bases), labels and a value, in the order of falling size.

    `assign` gives labels (n,) and some value, such as an objective, for parts (k, ...). Labels are
    those of the new order exactly, since a tie goes to the first.
    """
    k = len(parts)
    labels, value = assign(parts)
    for _ in range(2):  # a new order can tip a tie and with it a size
        order = canonical_order(labels, k)
        if (order == np.arange(k)).all():
            break
        parts = parts[order]
        labels, value = assign(parts)
    return parts, labels, value


def best_of(fit: Callable[[int], Any], n_init: int, seed: int) -> Any:
    """The fitted model with the lowest `inertia_` of `n_init` seeds drawn from `seed`."""
    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=n_init)
    return min((fit(int(drawn)) for drawn in seeds), key=lambda model: model.inertia_)


def all_samples(source: Source, device: torch.device) -> Tensor:
    """All samples as one finite tensor (n, d), in float32 where that holds the stored values."""
    blocks = Blocks(source, working_dtype(source.dtype), device)
    out = torch.empty(len(blocks), blocks.dim, dtype=blocks.dtype, device=device)
    for start, z in blocks:
        check_finite(z.square().sum(dim=1), source.name, start)
        out[start : start + len(z)] = z
    return out


def subsample(n: int, most: int, seed: int) -> NDArray:
    """Rows of a random subsample in order, or all n where there are no more than `most`."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def unit_rows(z: Tensor) -> Tensor:
    """Rows brought to unit norm; zero rows stay zero."""
    # Divided by the largest entry first, so that squares neither over- nor underflow.
    largest = z.abs().amax(dim=1, keepdim=True)
    z = z / torch.where(largest > 0, largest, 1)
    norms = z.norm(dim=1, keepdim=True)
    return z / torch.where(norms > 0, norms, 1)


def sharpened(shares: Tensor) -> Tensor:
    """The target of soft assignments (n, k): t proportional to s^2 / f, f_j = sum_i s_ij.

    Surer than the shares, and fair to small clusters; rows sum to 1. f belongs to all samples, so
    the shares have to be those of all of them.
    """
    weight = shares.square() / shares.sum(dim=0).clamp(min=torch.finfo(shares.dtype).tiny)
    return weight / weight.sum(dim=1, keepdim=True)
