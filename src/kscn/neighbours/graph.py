"""The K nearest of every sample, and the sparse graph that they make.

Distances come from blocks of a matrix product with a running selection of the K nearest, so memory
is n x K. For data near subspaces through the origin, nearness is the angle between lines, whatever
their direction: the absolute cosine (thresholding subspace clustering).

Sets too large to compare all with all have an index, a graph of faiss (HNSW): every sample is
linked to some near ones when it comes in, and neighbours are found by following links. Nearly all
of the nearest are found, in time that grows with n log n. Cells of k-means are faster to search,
but of samples near subspaces they miss a fifth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from kscn.errors import InputError
from kscn.extras import require


@dataclass(frozen=True)
class Rules:
    """The numbers of neighbours and their graph."""

    # Rows of the product at a time, and columns of it: a block of this size takes 32 MiB, of which
    # the caches hold a part (four times the rows take a tenth longer).
    rows: int = 512
    columns: int = 16384
    # Of an index: links per sample, and candidates that are kept while links are followed.
    links: int = 32
    width: int = 100
    # Neighbours per sample of a graph, within which bounds; up to 40 gave no better result.
    fewest: int = 4
    most: int = 20


RULES = Rules()
METRICS = ("distance", "cosine", "absolute cosine")


@dataclass(frozen=True)
class Neighbours:
    """The K nearest of every sample, nearest first.

    `index` (n, K) holds their numbers and `closeness` (n, K) minus their squared distance, or the
    (absolute) cosine of the angle to them.
    """

    index: Tensor
    closeness: Tensor


def graph_size(n: int, k: int, share: float = 0.9) -> int:
    """Neighbours per sample of a graph of n samples in k clusters.

    They are this share of the root of the members of a usual cluster: large clusters bear more,
    small ones must not be joined to their neighbours.
    """
    return min(n - 1, RULES.most, max(RULES.fewest, round(share * math.sqrt(n / k))))


def nearest(
    z: Tensor, count: int, metric: str = "distance", index: str = "exact", seed: int = 0
) -> Neighbours:
    """The `count` nearest other samples of each row of z (n, d).

    Parameters
    ----------
    z : Tensor, shape (n, d)
        Samples, on any device.
    count : int
        Neighbours per sample; fewer where there are not as many.
    metric : {"distance", "cosine", "absolute cosine"}
        What makes a sample near.
    index : {"exact", "approximate"}
        Compare all with all, in time that grows with n^2; or find nearly all of the nearest by an
        index (needs the extra `index`), by distance or cosine.
    seed : int
        Of the index.
    """
    if index not in ("exact", "approximate"):
        raise ValueError(f"index={index!r} must be 'exact' or 'approximate'")
    if metric not in METRICS:
        raise ValueError(f"metric={metric!r} must be one of {', '.join(METRICS)}")
    n = len(z)
    count = min(count, n - 1)
    if metric != "distance":
        z = torch.nn.functional.normalize(z, dim=1, eps=torch.finfo(z.dtype).tiny)
    if index == "approximate":
        return _nearest_by_index(z, count, metric, seed)
    norms = z.square().sum(dim=1)
    found = [_nearest_of(z, norms, start, count, metric) for start in range(0, n, RULES.rows)]
    return Neighbours(*(torch.cat(part) for part in zip(*found, strict=True)))


def nearest_distinct(z: Tensor, count: int) -> Neighbours:
    """The `count` nearest by distance of every row of z (n, d) that are not copies of it.

    Of equal samples the first stands for all. A pile of them would otherwise be the whole
    neighbourhood of each, and by that alone a perfect cluster. Where fewer samples differ than
    are asked for, copies count like others.
    """
    rows = np.ascontiguousarray(z.cpu().numpy())
    as_bytes = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, which = np.unique(as_bytes, return_index=True, return_inverse=True)
    if len(first) == len(z) or len(first) <= count:
        return nearest(z, count)
    stands = torch.from_numpy(first).to(z.device)
    found, pile = nearest(z[stands], count), torch.from_numpy(which).to(z.device)
    return Neighbours(stands[found.index][pile], found.closeness[pile])


def _nearest_of(
    z: Tensor, norms: Tensor, start: int, count: int, metric: str
) -> tuple[Tensor, Tensor]:
    """Neighbours of the rows from `start` on: numbers and closeness."""
    rows = z[start : start + RULES.rows]
    own = torch.arange(start, start + len(rows), device=z.device)
    best, index = None, None
    for low in range(0, len(z), RULES.columns):
        columns = z[low : low + RULES.columns]
        if metric == "distance":  # up to a factor, and to what is the same for the whole row
            near = torch.addmm(norms[None, low : low + RULES.columns], rows, columns.mT, beta=-0.5)
        else:
            near = rows @ columns.mT
        if metric == "absolute cosine":
            near.abs_()
        inside = (own >= low) & (own < low + len(columns))
        near[inside, own[inside] - low] = -torch.inf
        values, where = near.topk(min(count, near.shape[1]), dim=1)
        where = where + low
        if best is not None and index is not None:
            values, where = torch.cat([best, values], dim=1), torch.cat([index, where], dim=1)
            values, order = values.topk(count, dim=1)
            where = where.gather(1, order)
        best, index = values, where
    assert best is not None and index is not None
    if metric == "distance":
        best = 2 * best - norms[start : start + RULES.rows, None]
    return index, best


def _nearest_by_index(z: Tensor, count: int, metric: str, seed: int) -> Neighbours:
    """Nearly the `count` nearest of each row, which has unit length if the metric is the cosine."""
    if metric == "absolute cosine":
        raise InputError(
            f"an approximate index knows the metrics distance and cosine, not {metric!r}; "
            "leave index='approximate' out for others."
        )
    faiss = require("faiss", "index", "an approximate index")
    rows = np.ascontiguousarray(z.detach().cpu().numpy(), dtype=np.float32)
    # In random order: links to what came before are poor where samples are sorted by kind.
    order = np.random.default_rng(seed).permutation(len(rows))
    made = faiss.IndexHNSWFlat(rows.shape[1], RULES.links)
    made.hnsw.efConstruction = RULES.width
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # several would make another graph every time
    try:
        made.add(rows[order])
    finally:
        faiss.omp_set_num_threads(threads)
    made.hnsw.efSearch = max(RULES.width, 2 * (count + 1))
    squared, found = made.search(rows, count + 1)  # oneself is among them
    # Where a part of the graph has too few members, numbers are missing and negative.
    short = (found < 0).any(axis=1)
    if short.any():
        squared[short], found[short] = made.storage.search(rows[short], count + 1)
    found = order[found]
    # All but oneself, or but the farthest where many are as near as oneself.
    own = found == np.arange(len(rows))[:, None]
    others = np.argsort(own, axis=1, kind="stable")[:, :-1]
    squared, found = (np.take_along_axis(part, others, axis=1) for part in (squared, found))
    closeness = -squared if metric == "distance" else 1 - squared / 2
    return Neighbours(
        torch.from_numpy(found).to(z.device), torch.from_numpy(closeness).to(z.device, z.dtype)
    )


def similarity_graph(
    neighbours: Neighbours, count: int, metric: str = "distance"
) -> sparse.csr_array:
    """Symmetric graph of the `count` nearest of everyone, (n, n) sparse.

    An edge that both ends chose weighs twice as much as one that only one end chose, which keeps
    hubs in check. Lines that include a smaller angle weigh more, by exp(-2 angle); with the metric
    "closeness" edges weigh what the neighbours say.
    """
    index = neighbours.index[:, :count].cpu().numpy()
    n, count = index.shape
    weights = np.ones((n, count))
    closeness = neighbours.closeness[:, :count].double().cpu().numpy()
    if metric == "absolute cosine":
        weights = np.exp(-2 * np.arccos(np.clip(closeness, 0.0, 1.0)))
    elif metric == "closeness":
        weights = closeness
    begin = np.arange(0, n * count + 1, count)
    graph = sparse.csr_array((weights.ravel(), index.ravel(), begin), shape=(n, n))
    return ((graph + graph.T) / 2).tocsr()
