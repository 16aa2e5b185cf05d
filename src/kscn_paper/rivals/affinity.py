"""What methods with an n x n affinity share: the cost before it, spectral clustering after."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kscn.constraints import Integer, parameter
from kscn.data import Source
from kscn.errors import InputError
from kscn.runtime.blocks import working_dtype
from kscn.stages import validation as check
from kscn_paper.rivals.base import Baseline, all_samples
from kscn_paper.rivals.self_expression import spectral_labels


@dataclass(frozen=True)
class Constants:
    """Numbers that costs are estimated by."""

    # One pass over a large matrix takes about as long as so many operations per entry in a product.
    one_pass: float = 50.0
    # Operations per entry to make a dense affinity and embed by it: a few passes to raise it to a
    # power and some hundred products with vectors.
    embedding: float = 150 * one_pass
    probe: int = 768  # side of the matrix product that measures the machine, a few milliseconds


COSTS = Constants()


@dataclass(frozen=True)
class Cost:
    """Peak memory beyond the samples in bytes, and arithmetic in floating-point operations."""

    memory: float
    operations: float

    @property
    def seconds(self) -> float:
        """Rough time on this machine."""
        return self.operations / _operations_per_second()

    def __str__(self) -> str:
        minutes = self.seconds / 60
        duration = f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:,.0f} hours"
        if minutes < 2:
            duration = f"{max(self.seconds, 1):.0f} s"
        memory = max(self.memory / 1e9, 0.1)
        return f"about {memory:,.1f} GB of memory and roughly {duration}"


@lru_cache(maxsize=1)
def _operations_per_second() -> float:
    a = torch.ones(COSTS.probe, COSTS.probe)
    taken = []
    for _ in range(4):  # the fastest: the first also starts threads, any may be interrupted
        began = time.perf_counter()
        a @ a
        taken.append(time.perf_counter() - began)
    return 2 * COSTS.probe**3 / max(min(taken), 1e-6)


@dataclass(eq=False, repr=False, kw_only=True)
class AffinityBaseline(Baseline):
    """A method that clusters by an affinity between all pairs of samples.

    A subclass says what it costs and makes the affinity. There is no `predict`: an affinity says
    nothing about samples that it was not made of.

    Parameters
    ----------
    max_samples : int, default=12000
        More samples are refused: time and mostly memory grow with their square.

    Attributes
    ----------
    affinity_ : ndarray or scipy.sparse.csr_array of shape (n, n)
        Symmetric; near zero for samples of different clusters.
    """

    max_samples: int = parameter(12_000, Integer(1))

    @abstractmethod
    def _cost(self, n: int, d: int, itemsize: int) -> Cost:
        """The cost of n samples with d features."""

    @abstractmethod
    def _make_affinity(self, source: Source) -> Any:
        """The affinity (n, n) of all samples, as a numpy array or a scipy sparse one."""

    def _fit(self, source: Source) -> None:
        itemsize = working_dtype(source.dtype).itemsize
        cost = self._affordable(len(source), self.n_features_in_, itemsize)
        self._log("cost", memory=cost.memory, expected_seconds=cost.seconds)
        self.affinity_ = self._make_affinity(source)
        self._log("spectral")
        self.labels_ = spectral_labels(self.affinity_, self.n_clusters, self.random_state_)

    def _affordable(self, n: int, d: int, itemsize: int) -> Cost:
        """The cost, unless there are too many samples."""
        cost = self._cost(n, d, itemsize)
        if n > self.max_samples:
            raise InputError(
                f"{type(self).__name__} of {n:,} samples would need {cost}, which grow with the "
                f"square of the samples; it takes at most max_samples={self.max_samples:,}. Use "
                "KSubspaces or KSCN, which need no affinity, cluster a subset, or raise "
                "max_samples."
            )
        return cost

    def _samples(self, source: Source) -> Tensor:
        return all_samples(source, check.device(self.device))
