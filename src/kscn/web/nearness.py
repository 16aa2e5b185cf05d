"""How near every sample is to its own subspace and to the next ones, in one pass over the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source
from kscn.errors import DataError
from kscn.report.pictures import drawn_range
from kscn.report.spaces import SubspaceSpace, space_of

# Subspaces remembered per sample: its own and the next, with one to spare for merged clusters.
_KEPT = 3
_BLOCK_ROWS, _BLOCK_NUMBERS = 8192, 2**22
# Rounding can tip a sample that lies halfway; more than this share means other data.
_TIPPED = 0.01


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
    low, high, tipped = np.inf, -np.inf, 0
    rows_at_once = max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // int(np.prod(source.shape))))
    for first, rows in source.batches(rows_at_once):
        low, high = min(low, float(rows.min())), max(high, float(rows.max()))
        if not isinstance(space, SubspaceSpace):
            continue
        here = slice(first, first + len(rows))
        residual = _shares(space, space.points(rows))
        nearest = residual.argmin(axis=1)
        own = np.where(labels[here] >= 0, labels[here], nearest)
        tipped += int((nearest != own).sum())
        # A sample's own cluster first, whatever rounding did to its distance.
        order = residual.copy()
        order[np.arange(len(rows)), own] = -1
        clusters[here] = np.argsort(order, axis=1, kind="stable")[:, :kept]
        distances[here] = np.take_along_axis(residual, clusters[here].astype(np.intp), axis=1)
    if tipped > max(1, _TIPPED * len(source)):
        raise DataError(
            f"{tipped:,} of the {len(source):,} samples in {source.name} are nearer to another "
            "subspace than labels.csv says, so these are not the samples of the run; give them "
            "with --data."
        )
    return Nearness(clusters, distances, *drawn_range(source, low, high))


def _shares(space: SubspaceSpace, z: Tensor) -> NDArray:
    """Distances of points (n, d) to all subspaces, (n, k)."""
    residual = space.subspaces.residuals(z)
    if space.subspaces.offsets is None:  # otherwise faint samples would all be typical
        energy = z.square().sum(dim=1, keepdim=True)
        residual = residual / energy.clamp(min=torch.finfo(torch.float64).tiny)
    return residual.numpy()
