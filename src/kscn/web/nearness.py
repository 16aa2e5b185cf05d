"""How near every sample is to its own subspace and to the next ones, in one pass over the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.data import Source
from kscn.report.spaces import space_of
from kscn.report.survey import Pass

# Subspaces remembered per sample: its own and the next, with one to spare for merged clusters.
_KEPT = 3


@dataclass(frozen=True)
class Nearness:
    """What the pass found.

    Attributes
    ----------
    clusters : ndarray of int32, shape (n, m)
        The run's clusters by distance, each sample's own first; m = 0 without subspaces.
    distances : ndarray of float32, shape (n, m)
        To their subspaces, as a share of the sample's energy where these are linear.
    low, high : float
        Range of the values in the samples, or in the images that they stand for.
    """

    clusters: NDArray
    distances: NDArray
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there are subspaces to be near to."""
        return self.clusters.shape[1] > 0

    def gaps(self, samples: NDArray, home: NDArray) -> tuple[NDArray, NDArray]:
        """How much nearer samples are to their own cluster than to the next one, and which that is.

        `home` maps clusters of the run to those they were merged into: the next cluster is the
        first that is not the same by now. Without one the gap is infinite and the number -1.
        """
        clusters, distances = home[self.clusters[samples]], self.distances[samples]
        other = clusters != clusters[:, :1]  # (b, m)
        first = other.argmax(axis=1)
        rows = np.arange(len(samples))
        found = other[rows, first]
        gap = distances[rows, first] - distances[:, 0]
        return np.where(found, gap, np.inf), np.where(found, clusters[rows, first], -1)


def measure(source: Source, labels: NDArray, model: Any) -> Nearness:
    """Read all samples once.

    Parameters
    ----------
    source : Source
        The samples of the run.
    labels : ndarray of shape (n,)
        Their clusters; below zero for none.
    model : estimator or None
        The model of the run, if it has one.
    """
    space = space_of(model, source.shape)
    kept = min(_KEPT, len(space.dims))
    clusters = np.empty((len(source), kept), dtype=np.int32)
    distances = np.empty((len(source), kept), dtype=np.float32)
    blocks = Pass(source, labels, space)
    for here, _, found in blocks:
        if not kept:
            continue
        own = np.where(labels[here] >= 0, labels[here], found.argmin(axis=1))
        # A sample's own cluster first, whatever rounding did to its distance.
        order = found.copy()
        order[np.arange(len(order)), own] = -1
        clusters[here] = np.argsort(order, axis=1, kind="stable")[:, :kept]
        distances[here] = np.take_along_axis(found, clusters[here].astype(np.intp), axis=1)
    return Nearness(clusters, distances, *blocks.range)
