"""The base class of all baselines: shared parameters, the course of a fit, numbers of clusters."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from kscn.constraints import Integer, check_parameters, parameter
from kscn.data import Source
from kscn.errors import InputError
from kscn.estimators.base import HistoryMixin, warn_of_empty
from kscn.runtime.blocks import Blocks, check_finite, working_dtype
from kscn.runtime.labels import canonical_order
from kscn.stages import validation as check

if TYPE_CHECKING:
    from typing_extensions import Self

Callbacks = Iterable[Callable[[Any, dict[str, Any]], object]]
# Rows that are compared with the first one at a time.
ROWS = 4096


@dataclass(eq=False, repr=False)
class Baseline(HistoryMixin, ClusterMixin, BaseEstimator, ABC):
    """A clustering method with a seed, a history and callbacks.

    A subclass is a dataclass: its fields are its parameters, besides the fields here, and say what
    they may be. It does its work in `_fit`, which sets `labels_`.
    `kscn.baselines` describes the parameters and attributes that all have.
    """

    n_clusters: int = parameter(8, Integer(1))
    _: KW_ONLY
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    callbacks: Callbacks = ()

    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Samples of shape (n, d), or images (n, h, w) or (n, c, h, w), which methods without
            convolutions flatten.
        y : ignored
        """
        source = check.open_samples(self, X, reset=True)
        if hasattr(self, "labels_"):
            del self.labels_  # a fit that fails leaves no mixture of the old model and the new
        self._check(len(source))
        self.random_state_ = check.seed(self.random_state)
        self.history_ = []
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

    def _check(self, n_samples: int) -> None:
        """Refuse impossible parameters before any work is done."""
        check_parameters(self)
        check.callbacks(self.callbacks)
        check.device(self.device)
        if n_samples < self.n_clusters:
            raise InputError(
                f"n_samples={n_samples} should be >= n_clusters={self.n_clusters}; give more "
                "samples or ask for fewer clusters."
            )

    def _log(self, stage: str, **values: Any) -> bool:
        """Add a record to the history and call the callbacks with it; whether one asks to stop."""
        return self._record({"stage": stage, **values})

    def _opened(self, X: Any) -> Source:
        """New samples for a fitted model."""
        check_is_fitted(self, "labels_")
        return check.open_samples(self, X, reset=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


Parts = TypeVar("Parts", NDArray, Tensor)
Value = TypeVar("Value")


def largest_first(
    parts: Parts, assign: Callable[[Parts], tuple[NDArray, Value]]
) -> tuple[Parts, NDArray, Value]:
    """Number clusters by falling size; labels are exactly what `assign` gives for that order.

    Parameters
    ----------
    parts : ndarray or Tensor, shape (k, ...)
        What makes each cluster: its centre or its basis.
    assign : callable
        From parts to the labels (n,) of all samples and some value, such as an objective.

    Returns
    -------
    parts, labels, value
        In the new order.
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


class HasInertia(Protocol):
    """A fitted model with an objective."""

    inertia_: float


Model = TypeVar("Model", bound=HasInertia)


def best_of(
    fit: Callable[[int], Model], n_init: int, seed: int, record: Callable[[dict[str, Any]], bool]
) -> Model:
    """The fitted model with the lowest `inertia_` of several seeds.

    Parameters
    ----------
    fit : callable
        From a seed to a fitted model.
    n_init : int
        Number of fits.
    seed : int
        Of the seeds.
    record : callable
        Called with a history record after each fit; returning True ends the search.
    """
    best: Model | None = None
    for turn, drawn in enumerate(np.random.RandomState(seed).randint(2**31 - 1, size=n_init)):
        found = fit(int(drawn))
        if best is None or found.inertia_ < best.inertia_:
            best = found
        objective = float(best.inertia_)
        entry = {"stage": "search", "round": turn + 1, "rounds": n_init, "objective": objective}
        if record(entry):
            break
    assert best is not None
    return best


def refuse_equal(source: Source) -> None:
    """Refuse samples that are all the same; one that differs ends the reading."""
    first = source[:1]
    for _, rows in source.batches(ROWS):
        if (rows != first).any():  # also NaN, which is refused by a name of its own later
            return
    raise InputError(
        f"All {len(source)} sample(s) of {source.name} are equal; there is nothing to cluster."
    )


def all_samples(source: Source, device: torch.device) -> Tensor:
    """All samples as one finite tensor (n, d), in float32 where that holds the stored values."""
    blocks = Blocks(source, working_dtype(source.dtype), device)
    out = torch.empty(len(blocks), blocks.dim, dtype=blocks.dtype, device=device)
    for start, z in blocks:
        check_finite(z.square().sum(dim=1), z, source.name)
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
