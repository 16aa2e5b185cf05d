"""One pass over the samples of a run: all that a report takes from them, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kscn.data import Source
from kscn.errors import DataError
from kscn.report.members import Extremes
from kscn.report.pictures import drawn_range
from kscn.report.spaces import SampleSpace, SubspaceSpace

# Samples that are in memory at once, and numbers in all of them together.
_BLOCK_ROWS, _BLOCK_NUMBERS = 8192, 2**22
# Samples on the map, and numbers in all of them together.
MAP_POINTS, _MAP_NUMBERS = 10_000, 2**24
# Rounding can tip a sample that lies halfway; more than this share means other data.
_TIPPED = 0.01


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes
    ----------
    typical, borderline, outliers : Extremes
        The samples nearest to their subspace, with the least gap to the second nearest (whose
        number is the note), and farthest from their own. Empty without subspaces.
    outside : ndarray of shape (k,)
        Mean over the members of the share of energy outside of the subspace.
    low, high : float
        Range of the values in the samples, or in the images that they stand for.
    chosen : ndarray of shape (m,)
        Samples for the map, ascending.
    points : ndarray of shape (m, d)
        Where they are in the space.
    """

    typical: Extremes
    borderline: Extremes
    outliers: Extremes
    outside: NDArray
    low: float
    high: float
    chosen: NDArray
    points: NDArray


def look(
    source: Source, labels: NDArray, n_clusters: int, space: SampleSpace, shown: int, seed: int = 0
) -> Survey:
    """Read all samples once.

    Parameters
    ----------
    source : Source
        The samples of the run.
    labels : ndarray of shape (n,)
        Their clusters; below zero for none.
    n_clusters : int
        Clusters.
    space : SampleSpace
        Where the clusters are; it gathers its sums on the way.
    shown : int
        Members of each kind to keep per cluster.
    seed : int
        Of the choice for the map.
    """
    chosen = _choice(len(source), space.dim, seed)
    points = np.empty((len(chosen), space.dim), dtype=np.float32)
    typical, borderline, outliers = (Extremes(n_clusters, shown) for _ in range(3))
    total, low, high, tipped = np.zeros(n_clusters), np.inf, -np.inf, 0
    for first, rows in source.batches(_rows_at_once(source)):
        here = labels[first : first + len(rows)]
        low, high = min(low, float(rows.min())), max(high, float(rows.max()))
        z = space.add(rows, torch.from_numpy(here))
        begin, end = np.searchsorted(chosen, (first, first + len(rows)))
        points[begin:end] = z[torch.from_numpy(chosen[begin:end] - first)].numpy()
        if not isinstance(space, SubspaceSpace):
            continue
        own, second, other, nearest = _distances(space, z, here)
        tipped += int((nearest != here)[here >= 0].sum())
        typical.add(first, here, own, other)
        borderline.add(first, here, second - own, other)
        outliers.add(first, here, -own, other)
        total += np.bincount(here[here >= 0], weights=own[here >= 0], minlength=n_clusters)
    if tipped > max(1, _TIPPED * len(source)):
        raise DataError(
            f"{tipped:,} of the {len(source):,} samples in {source.name} are nearer to another "
            "subspace than labels.csv says, so these are not the samples of the run; give them "
            "with --data."
        )
    sizes = np.bincount(labels[labels >= 0], minlength=n_clusters)
    outside = total / np.maximum(sizes, 1)
    low, high = drawn_range(source, low, high)
    return Survey(typical, borderline, outliers, outside, low, high, chosen, points)


def _rows_at_once(source: Source) -> int:
    return max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // int(np.prod(source.shape))))


def _choice(n_samples: int, dim: int, seed: int) -> NDArray:
    most = max(2, min(MAP_POINTS, _MAP_NUMBERS // dim))
    if n_samples <= most:
        return np.arange(n_samples)
    return np.sort(np.random.default_rng(seed).choice(n_samples, most, replace=False))


def _distances(
    space: SubspaceSpace, z: torch.Tensor, labels: NDArray
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Of every sample: distance to its own and to the nearest other subspace, both numbers.

    A linear subspace holds a share of a sample's energy, and what it misses is told as a share
    too: otherwise faint samples would all be typical. Affine subspaces have no such origin.
    """
    residual = space.subspaces.residuals(z)
    nearest = residual.argmin(dim=1).numpy()
    if space.subspaces.offsets is None:
        energy = z.square().sum(dim=1, keepdim=True)
        residual = residual / energy.clamp(min=torch.finfo(torch.float64).tiny)
    distance = residual.numpy()
    rows, own = np.arange(len(labels)), np.maximum(labels, 0)
    to_own = distance[rows, own].copy()
    distance[rows, own] = np.inf
    other = distance.argmin(axis=1)
    to_other = distance[rows, other] if distance.shape[1] > 1 else np.full(len(rows), np.inf)
    return to_own, to_other, other, nearest
