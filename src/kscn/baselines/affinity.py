"""What methods with an affinity share: the cost before any work, spectral clustering after it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from kscn.baselines.base import Baseline, all_samples
from kscn.baselines.cost import Cost, check_affordable
from kscn.baselines.spectral import spectral_labels
from kscn.constraints import Integer, parameter
from kscn.data import Source
from kscn.runtime.blocks import working_dtype
from kscn.stages import validation as check


@dataclass(eq=False, repr=False, kw_only=True)
class AffinityBaseline(Baseline):
    """A method that clusters by an affinity between all pairs of samples.

    A subclass says what it costs and makes the affinity. There is no `predict`: an affinity says
    nothing about samples that it was not made of.

    Parameters
    ----------
    max_samples : int, default=12000
        More samples are refused: time and mostly memory grow with their square.
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
        check_affordable(type(self).__name__, n, self.max_samples, cost)
        return cost

    def _samples(self, source: Source) -> Tensor:
        return all_samples(source, check.device(self.device))
