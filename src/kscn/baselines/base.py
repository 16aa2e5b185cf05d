"""What all affinity methods share: checks, the price, the history, spectral clustering."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags
from torch import Tensor

from kscn.baselines.cost import Cost, check_affordable
from kscn.baselines.spectral import spectral_labels
from kscn.data import Source
from kscn.errors import InputError
from kscn.estimators import validation as check
from kscn.estimators.telling import Telling, warn_of_empty
from kscn.training.blocks import Blocks, check_finite, working_dtype

if TYPE_CHECKING:
    from typing_extensions import Self

Callbacks = Iterable[Callable[[Any, dict[str, Any]], object]]


class AffinityClusterer(Telling, ClusterMixin, BaseEstimator, ABC):
    """Cluster by an affinity between all pairs of samples.

    A subclass says what it will cost and makes the affinity; its constructor has at least
    `n_clusters`, `max_samples`, `device`, `random_state` and `callbacks`. There is no `predict`:
    an affinity says nothing about samples that it was not made of.
    """

    # Argument -> least value, or -> [low, high).
    _integers: ClassVar[dict[str, int]] = {}
    _numbers: ClassVar[dict[str, tuple[float, float]]] = {}
    _switches: ClassVar[tuple[str, ...]] = ()

    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Samples of shape (n, d), or images, which are flattened.
        y : ignored
        """
        source = self._begin(X)
        self.affinity_ = self._make_affinity(source)
        self._record({"stage": "spectral"})
        self.labels_ = spectral_labels(self.affinity_, self.n_clusters, self.random_state_)
        warn_of_empty(self.labels_, self.n_clusters, stacklevel=2)
        return self

    @abstractmethod
    def _cost(self, n: int, d: int, itemsize: int) -> Cost:
        """The price of n samples with d features."""

    @abstractmethod
    def _make_affinity(self, source: Source) -> Any:
        """The affinity (n, n) of all samples, as a numpy array or a scipy sparse one."""

    def _begin(self, X: Any) -> Source:
        """Check everything that can be checked before any work is done, and say the price."""
        source = check.open_samples(self, X, reset=True)
        n = len(source)
        self._check_settings(n)
        self.random_state_ = check.seed(self.random_state)
        self._began = time.perf_counter()
        self.history_: list[dict[str, Any]] = []
        self._dtype = working_dtype(source.dtype)
        cost = self._cost(n, self.n_features_in_, self._dtype.itemsize)
        check_affordable(type(self).__name__, n, self.max_samples, cost)
        self._record({"stage": "cost", "memory": cost.memory, "expected_seconds": cost.seconds})
        return source

    def _check_settings(self, n: int) -> None:
        for name, least in {"n_clusters": 1, "max_samples": 1, **self._integers}.items():
            check._integer(name, getattr(self, name), least)
        for name, (low, high) in self._numbers.items():
            check._number(name, getattr(self, name), low, high)
        for name in self._switches:
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise InputError(f"{name}={getattr(self, name)!r} must be True or False.")
        check._callbacks(self.callbacks)
        check.device(self.device)
        if n < self.n_clusters:
            raise InputError(
                f"n_samples={n} should be >= n_clusters={self.n_clusters}; give more samples or "
                "ask for fewer clusters."
            )

    def _samples(self, source: Source) -> Tensor:
        """All samples as one finite tensor (n, d)."""
        blocks = Blocks(source, self._dtype, check.device(self.device))
        z = torch.cat([block for _, block in blocks])
        check_finite(z.square().sum(dim=1), z, source.name)
        if (z == z[0]).all():
            raise InputError(
                f"All {len(z)} sample(s) of {source.name} are equal; there is nothing to cluster."
            )
        return z

    def fit_predict(self, X: Any, y: object = None) -> NDArray:
        """Fit and return `labels_`."""
        return self.fit(X).labels_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def check_positive_or_none(name: str, value: Any, above: float = 0) -> None:
    """Refuse a setting that is neither None nor a number above `above`."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if value is not None and not (number and above < float(value) < np.inf):
        raise InputError(f"{name}={value!r} must be None or a number above {above}.")


def unit_rows(z: Tensor) -> Tensor:
    """Rows brought to unit norm; zero rows stay zero."""
    largest = z.abs().amax(
        dim=1, keepdim=True
    )  # first, so that squares neither over- nor underflow
    z = z / torch.where(largest > 0, largest, 1)
    norms = z.norm(dim=1, keepdim=True)
    return z / torch.where(norms > 0, norms, 1)
