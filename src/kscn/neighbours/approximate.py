"""The K nearest of every sample by an index, for sets too large to compare all with all.

An inverted file of faiss: k-means divides the samples into cells, and a sample is compared with
those of the cells nearest to it. Nearly all of the nearest are found, in time that grows with
n^1.5. Unlike a graph of samples that is built by several threads, it comes out the same again.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.errors import InputError
from kscn.neighbours.graph import Neighbours

# Cells per root of the number of samples, how many of them a sample looks into, and how many
# samples a cell's centre is found from at most.
CELLS, VISITED, TAUGHT_BY = 2, 48, 64
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
    squared, found = _search(_filled(rows, seed), rows, count + 1)
    squared, found = _without_oneself(squared, found)
    closeness = -squared if metric == "distance" else 1 - squared / 2
    return Neighbours(
        torch.from_numpy(found).to(z.device), torch.from_numpy(closeness).to(z.device, z.dtype)
    )


def _filled(rows: NDArray, seed: int) -> Any:
    """An index that holds the rows."""
    n, d = rows.shape
    faiss = _faiss()
    cells = max(1, min(n, round(CELLS * math.sqrt(n))))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(d), d, cells)
    index.cp.seed = seed
    index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, TAUGHT_BY
    index.train(rows)
    index.add(rows)
    return index


def _search(index: Any, rows: NDArray, count: int) -> tuple[NDArray, NDArray]:
    """Squared distances and numbers (n, count) of the nearest, oneself among them."""
    index.nprobe = min(VISITED, index.nlist)
    while True:
        squared, found = index.search(rows, count)
        # A sample whose cells hold less than is asked for has gaps, told by negative numbers.
        if index.nprobe == index.nlist or (found >= 0).all():
            return squared, found
        index.nprobe = min(4 * index.nprobe, index.nlist)


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
