"""Passes over the samples of a run in constant memory: all that pages take from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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


def check_data(config: Mapping[str, Any], source: Source) -> None:
    """Refuse samples of another number or shape than those of the run with that config."""
    expected, shape = config["data"]["samples"], tuple(config["data"]["shape"])
    if len(source) != expected or tuple(source.shape) != shape:
        raise DataError(
            f"{source.name} has {len(source):,} samples of shape {tuple(source.shape)} and the run "
            f"was fitted on {expected:,} of shape {shape}; give its data with --data."
        )


class Pass:
    """One reading of all samples, in blocks.

    Parameters
    ----------
    source : Source
        The samples of the run.
    labels : ndarray of shape (n,)
        Their clusters; below zero for none.
    space : SampleSpace
        Where the clusters are.
    gather : bool
        Whether the space is to sum up its points on the way.
    """

    def __init__(
        self, source: Source, labels: NDArray, space: SampleSpace, gather: bool = False
    ) -> None:
        self._source, self._labels, self._space = source, labels, space
        self._take = space.add if gather else lambda rows, _: space.points(rows)
        self._low, self._high = np.inf, -np.inf

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest value in the samples, or in the images they stand for."""
        return drawn_range(self._source, self._low, self._high)

    def __iter__(self) -> Iterator[tuple[slice, torch.Tensor, NDArray]]:
        """Places of a block, its points (n, d), and their distances to all subspaces (n, k)."""
        source, tipped = self._source, 0
        block = max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // int(np.prod(source.shape))))
        for first, rows in source.batches(block):
            here = slice(first, first + len(rows))
            own = self._labels[here]
            self._low = min(self._low, float(rows.min()))
            self._high = max(self._high, float(rows.max()))
            z = self._take(rows, torch.from_numpy(own))
            distances = _distances(self._space, z)
            if distances.size:
                tipped += int((distances.argmin(axis=1) != own)[own >= 0].sum())
            yield here, z, distances
        if tipped > max(1, _TIPPED * len(source)):
            raise DataError(
                f"{tipped:,} of the {len(source):,} samples in {source.name} are nearer to another "
                "subspace than labels.csv says, so these are not the samples of the run; give them "
                "with --data."
            )


def _distances(space: SampleSpace, z: torch.Tensor) -> NDArray:
    """Distances of points (n, d) to all subspaces, (n, k); k is 0 where there are none.

    A linear subspace holds a share of a sample's energy, and what it misses is told as a share
    too: otherwise faint samples would all be typical. Affine subspaces have no such origin.
    """
    if not isinstance(space, SubspaceSpace):
        return np.empty((len(z), 0))
    residual = space.subspaces.residuals(z)
    if space.subspaces.offsets is None:
        energy = z.square().sum(dim=1, keepdim=True)
        residual = residual / energy.clamp(min=torch.finfo(torch.float64).tiny)
    return residual.numpy()


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
    total, sizes = np.zeros(n_clusters), np.bincount(labels[labels >= 0], minlength=n_clusters)
    blocks = Pass(source, labels, space, gather=True)
    for here, z, distances in blocks:
        first, mine = here.start, labels[here]
        begin, end = np.searchsorted(chosen, (first, here.stop))
        points[begin:end] = z[torch.from_numpy(chosen[begin:end] - first)].numpy()
        if not distances.size:
            continue
        own, second, other = _own_and_other(distances, mine)
        typical.add(first, mine, own, other)
        borderline.add(first, mine, second - own, other)
        outliers.add(first, mine, -own, other)
        total += np.bincount(mine[mine >= 0], weights=own[mine >= 0], minlength=n_clusters)
    outside = total / np.maximum(sizes, 1)
    return Survey(typical, borderline, outliers, outside, *blocks.range, chosen, points)


def _choice(n_samples: int, dim: int, seed: int) -> NDArray:
    most = max(2, min(MAP_POINTS, _MAP_NUMBERS // dim))
    if n_samples <= most:
        return np.arange(n_samples)
    return np.sort(np.random.default_rng(seed).choice(n_samples, most, replace=False))


def _own_and_other(distances: NDArray, labels: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Of every sample: distance to its own and to the nearest other subspace, and which that is."""
    rows, own = np.arange(len(labels)), np.maximum(labels, 0)
    to_own = distances[rows, own]
    others = distances.copy()
    others[rows, own] = np.inf
    other = others.argmin(axis=1)
    return to_own, others[rows, other], other
