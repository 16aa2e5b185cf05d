"""The base class of all baselines: shared parameters, the course of a fit, numbers of clusters."""

from __future__ import annotations

import inspect
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

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
from kscn.runtime.group import ALONE
from kscn.runtime.labels import canonical_order
from kscn.stages import validation as check

if TYPE_CHECKING:
    from typing import Self


@dataclass(eq=False, repr=False)
class Baseline(HistoryMixin, ClusterMixin, BaseEstimator, ABC):
    """A clustering method with a seed, a history and callbacks.

    A subclass is a dataclass: its fields are its parameters, besides the fields here, and say what
    they may be. It does its work in `_fit`, which sets `labels_`. Its docstring describes what it
    adds; what its base classes have is put in.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything random.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the stage that it is called in.

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
    callbacks: Iterable[Callable[[Any, dict[str, Any]], object]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__doc__:
            bases = [base for base in reversed(cls.__bases__) if issubclass(base, Baseline)]
            cls.__doc__ = _with_inherited(cls.__doc__, [base.__doc__ or "" for base in bases])

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
        check.unequal(source, ALONE)
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


def _with_inherited(doc: str, inherited: list[str]) -> str:
    """A numpydoc docstring that also has the parameters and attributes of others."""
    documents = [_sections(one) for one in (*inherited, doc)]
    merged = documents[-1]
    for heading in ("Parameters", "Attributes"):
        # By name, so that an own entry takes the place of an inherited one.
        entries: dict[str, str] = {}
        for sections in documents:
            for entry in re.split(r"\n(?=\S)", sections[heading]):
                entries[entry.partition(" :")[0]] = entry
        merged[heading] = "\n".join(filter(None, entries.values()))
    prose = merged.pop("")
    return "\n\n".join([prose, *(f"{h}\n{'-' * len(h)}\n{text}" for h, text in merged.items())])


def _sections(doc: str) -> dict[str, str]:
    """The parts of a docstring by their headings, the first without one."""
    prose, *rest = re.split(r"^(\w+)\n-+\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    found = {"": prose, "Parameters": "", "Attributes": ""}
    found |= dict(zip(rest[::2], rest[1::2], strict=True))
    return {heading: text.strip() for heading, text in found.items()}


Parts = TypeVar("Parts", NDArray, Tensor)
Value = TypeVar("Value")


def largest_first(
    parts: Parts, assign: Callable[[Parts], tuple[NDArray, Value]]
) -> tuple[Parts, NDArray, Value]:
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


def best_of(
    fit: Callable[[int], Any], n_init: int, seed: int, record: Callable[[dict[str, Any]], bool]
) -> Any:
    """The fitted model with the lowest `inertia_` of `n_init` seeds drawn from `seed`.

    `record` is called with a history record after each fit; returning True ends the search.
    """
    best: Any = None
    for turn, drawn in enumerate(np.random.RandomState(seed).randint(2**31 - 1, size=n_init)):
        found = fit(int(drawn))
        if best is None or found.inertia_ < best.inertia_:
            best = found
        objective = float(best.inertia_)
        entry = {"stage": "search", "round": turn + 1, "rounds": n_init, "objective": objective}
        if record(entry):
            break
    return best


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
