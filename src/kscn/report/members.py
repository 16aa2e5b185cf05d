"""The members of each cluster that are worth a look, found in one pass over blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Extremes:
    """The samples of lowest score in every cluster, whatever the number of samples seen.

    Parameters
    ----------
    n_clusters : int
        Clusters.
    count : int
        Samples kept of each.
    """

    def __init__(self, n_clusters: int, count: int) -> None:
        self._n_clusters = n_clusters
        self._count = count
        self._labels = np.empty(0, dtype=np.int64)
        self._scores = np.empty(0)
        self._indices = np.empty(0, dtype=np.int64)
        self._notes = np.empty(0)

    def add(self, first: int, labels: NDArray, scores: NDArray, notes: NDArray) -> None:
        """Take in the block of samples that begins at index `first`.

        `notes` is one more number per sample, kept for those that stay. Labels below zero, of
        samples that are in no cluster, are passed over.
        """
        inside = np.flatnonzero(labels >= 0)
        labels = np.concatenate([self._labels, labels[inside]])
        scores = np.concatenate([self._scores, scores[inside]])
        indices = np.concatenate([self._indices, inside + first])
        notes = np.concatenate([self._notes, notes[inside]])
        order = np.lexsort((indices, scores, labels))
        ordered = labels[order]
        rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)  # within its cluster
        kept = order[rank < self._count]
        self._labels, self._scores = labels[kept], scores[kept]
        self._indices, self._notes = indices[kept], notes[kept]

    def of(self, cluster: int) -> tuple[NDArray, NDArray, NDArray]:
        """Indices, scores and notes of a cluster's samples, the lowest score first."""
        here = self._labels == cluster
        return self._indices[here], self._scores[here], self._notes[here]
