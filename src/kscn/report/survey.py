"""Passes over the samples of a run in constant memory: all that pages take from them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kscn.data import Source
from kscn.errors import DataError
from kscn.report.spaces import SubspaceSpace
from kscn.runtime.rows import sample_rows

# Numbers in the samples that are in memory at once, and in those on the map.
_BLOCK_NUMBERS, _MAP_NUMBERS = 2**22, 2**24
# Rounding can tip a sample that lies halfway; more than this share means other data.
_TIPPED = 0.01


class Pass:
    """One reading of all samples of a run in blocks, with `labels` below zero for no cluster."""

    def __init__(
        self,
        source: Source,
        labels: NDArray,
        space: SubspaceSpace,
        block_rows: int = 8192,
    ) -> None:
        self._source, self._labels, self._space = source, labels, space
        self._block_rows = block_rows
        self._low, self._high = np.inf, -np.inf

    @property
    def range(self) -> tuple[float, float]:
        """The values to draw darkest and lightest: the least and the greatest in the samples.

        Where samples stand for images, those that images of their type are made of.
        """
        pictures = self._source.pictures
        if pictures is self._source:
            return self._low, self._high
        return (0.0, 255.0) if pictures.dtype.kind in "biu" else (0.0, 1.0)

    def __iter__(self) -> Iterator[tuple[slice, torch.Tensor, NDArray]]:
        """Places of a block, its points (n, d), and their distances to all subspaces (n, k)."""
        source, tipped = self._source, 0
        block = max(1, min(self._block_rows, _BLOCK_NUMBERS // int(np.prod(source.shape))))
        for first, rows in source.batches(block):
            here = slice(first, first + len(rows))
            own = self._labels[here]
            self._low = min(self._low, float(rows.min()))
            self._high = max(self._high, float(rows.max()))
            z = self._space.points(rows)
            distances = _distances(self._space, z)
            tipped += int((distances.argmin(axis=1) != own)[own >= 0].sum())
            yield here, z, distances
        if tipped > max(1, _TIPPED * len(source)):
            raise DataError(
                f"{tipped:,} of the {len(source):,} samples in {source.name} are nearer to another "
                "subspace than labels.csv says, so these are not the samples of the run; give them "
                "with --data."
            )


def _distances(space: SubspaceSpace, z: torch.Tensor) -> NDArray:
    """Distances of points (n, d) to all subspaces, (n, k).

    A linear subspace holds a share of a sample's energy, and what it misses is told as a share
    too: otherwise faint samples would all be typical. Affine subspaces have no such origin.
    """
    residual = space.subspaces.residuals(z)
    if space.subspaces.offsets is None:
        energy = z.square().sum(dim=1, keepdim=True)
        residual = residual / energy.clamp(min=torch.finfo(torch.float64).tiny)
    return residual.numpy()


class Extremes:
    """The `count` samples of lowest score in every cluster, whatever the number of samples seen."""

    def __init__(self, count: int) -> None:
        self._count = count
        # Rows: label, index, score, and one more number that is kept beside them.
        self._kept = np.empty((4, 0))

    def add(self, first: int, labels: NDArray, scores: NDArray, notes: NDArray) -> None:
        """Take in the block of samples that begins at index `first`.

        `notes` is one more number per sample, kept for those that stay. Labels below zero, of
        samples that are in no cluster, are passed over.
        """
        block = np.stack([labels, first + np.arange(len(labels)), scores, notes])
        kept = np.concatenate([self._kept, block[:, labels >= 0]], axis=1)
        kept = kept[:, np.lexsort((kept[1], kept[2], kept[0]))]
        rank = np.arange(kept.shape[1]) - np.searchsorted(kept[0], kept[0])  # within its cluster
        self._kept = kept[:, rank < self._count]

    def of(self, cluster: int) -> tuple[NDArray, NDArray, NDArray]:
        """Indices, scores and notes of a cluster's samples, the lowest score first."""
        _, indices, scores, notes = self._kept[:, self._kept[0] == cluster]
        return indices.astype(np.int64), scores, notes


@dataclass(frozen=True)
class Survey:
    """What was found."""

    typical: Extremes  # nearest to their subspace
    borderline: Extremes  # of the least gap to the second nearest, whose number is the note
    outliers: Extremes  # farthest from their own
    outside: NDArray  # (k,) mean over the members of the share of energy outside of the subspace
    low: float  # range of the values in the samples, or in the images that they stand for
    high: float
    chosen: NDArray  # (m,) samples for the map, ascending
    points: NDArray  # (m, d) where they are in the space


def look(
    source: Source,
    labels: NDArray,
    n_clusters: int,
    space: SubspaceSpace,
    shown: int,
    *,
    map_points: int = 10_000,
    block_rows: int = 8192,
) -> Survey:
    """Read all samples once and keep `shown` members of each kind.

    At most `map_points` samples are on the map, and `block_rows` are in memory at once.
    """
    most = max(2, min(map_points, _MAP_NUMBERS // space.dim))
    chosen = sample_rows(len(source), most, seed=0)
    points = np.empty((len(chosen), space.dim), dtype=np.float32)
    typical, borderline, outliers = (Extremes(shown) for _ in range(3))
    total, sizes = np.zeros(n_clusters), np.bincount(labels[labels >= 0], minlength=n_clusters)
    blocks = Pass(source, labels, space, block_rows)
    for here, z, distances in blocks:
        first, mine = here.start, labels[here]
        begin, end = np.searchsorted(chosen, (first, here.stop))
        points[begin:end] = z[torch.from_numpy(chosen[begin:end] - first)].numpy()
        rows, label = np.arange(len(mine)), np.maximum(mine, 0)
        own = distances[rows, label]
        others = distances.copy()
        others[rows, label] = np.inf
        other = others.argmin(axis=1)
        typical.add(first, mine, own, other)
        borderline.add(first, mine, others[rows, other] - own, other)
        outliers.add(first, mine, -own, other)
        total += np.bincount(mine[mine >= 0], weights=own[mine >= 0], minlength=n_clusters)
    outside = total / np.maximum(sizes, 1)
    return Survey(typical, borderline, outliers, outside, *blocks.range, chosen, points)
