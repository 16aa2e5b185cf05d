"""The K nearest of every sample by an index, for sets too large to compare all with all.

A graph of faiss (HNSW): every sample is linked to some near ones when it comes in, and neighbours
are found by following links. Nearly all of the nearest are found, in time that grows with n log n.
Cells of k-means are faster to search, but of samples near subspaces they miss a fifth.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.errors import InputError
from kscn.neighbours.graph import Neighbours

# Links per sample, and candidates that are kept while links are followed.
LINKS, WIDTH = 32, 100
METRICS = ("distance", "cosine")


def nearest_by_index(z: Tensor, count: int, metric: str = "distance", seed: int = 0) -> Neighbours:
    """Nearly the `count` nearest other samples of each row of z (n, d); see `nearest`."""
    if metric not in METRICS:
        raise InputError(
            f"an approximate index knows the metrics {' and '.join(METRICS)}, not {metric!r}; "
            "leave index='approximate' out for others."
        )
    n = len(z)
    count = min(count, n - 1)
    if metric == "cosine":
        z = torch.nn.functional.normalize(z, dim=1, eps=torch.finfo(z.dtype).tiny)
    rows = np.ascontiguousarray(z.detach().cpu().numpy(), dtype=np.float32)
    # In random order: links to what came before are poor where samples are sorted by kind.
    order = np.random.default_rng(seed).permutation(n)
    squared, found = _search(_filled(rows[order]), rows, count + 1)
    squared, found = _without_oneself(squared, order[found])
    closeness = -squared if metric == "distance" else 1 - squared / 2
    return Neighbours(
        torch.from_numpy(found).to(z.device), torch.from_numpy(closeness).to(z.device, z.dtype)
    )


def _filled(rows: NDArray) -> Any:
    """An index that holds the rows."""
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(rows.shape[1], LINKS)
    index.hnsw.efConstruction = WIDTH
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # several would make another graph every time
    try:
        index.add(rows)
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _search(index: Any, rows: NDArray, count: int) -> tuple[NDArray, NDArray]:
    """Squared distances and numbers (n, count) of the nearest, oneself among them."""
    index.hnsw.efSearch = max(WIDTH, 2 * count)
    squared, found = index.search(rows, count)
    # Where a part of the graph has too few members, numbers are missing and negative.
    short = (found < 0).any(axis=1)
    if short.any():
        squared[short], found[short] = index.storage.search(rows[short], count)
    return squared, found


def _without_oneself(squared: NDArray, found: NDArray) -> tuple[NDArray, NDArray]:
    """All but oneself, or but the farthest where many are as near as oneself."""
    own = found == np.arange(len(found))[:, None]
    order = np.argsort(own, axis=1, kind="stable")[:, :-1]
    return np.take_along_axis(squared, order, axis=1), np.take_along_axis(found, order, axis=1)


def _faiss() -> Any:
    try:
        return import_module("faiss")
    except ImportError:
        raise InputError(
            "an approximate index needs the package faiss; run pip install 'kscn[index]'."
        ) from None
