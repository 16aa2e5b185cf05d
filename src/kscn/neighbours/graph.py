"""The K nearest of every sample, and the sparse graph that they make.

Distances come from blocks of a matrix product, so memory is n x K. For data near subspaces through
the origin, nearness is the angle between lines, whatever their direction: the absolute cosine
(thresholding subspace clustering).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

# Rows of the product at a time, and columns of it: a block of this size takes 32 MiB, of which the
# caches hold a part (four times the rows take a tenth longer).
ROWS, COLUMNS = 512, 16384
# Neighbours per sample of a graph, within which bounds; up to 40 gave no better result.
FEWEST, MOST = 4, 20
METRICS = ("distance", "absolute cosine")


@dataclass(frozen=True)
class Neighbours:
    """The K nearest of every sample, nearest first.

    `index` (n, K) holds their numbers and `closeness` (n, K) minus their squared distance, or the
    absolute cosine of the angle to them.
    """

    index: Tensor
    closeness: Tensor


def graph_size(n: int, k: int, share: float = 0.9) -> int:
    """Neighbours per sample of a graph of n samples in k clusters.

    They are this share of the root of the members of a usual cluster: large clusters bear more,
    small ones must not be joined to their neighbours.
    """
    return min(n - 1, MOST, max(FEWEST, round(share * math.sqrt(n / k))))


def nearest(z: Tensor, count: int, metric: str = "distance", columns: int = COLUMNS) -> Neighbours:
    """The `count` nearest other samples of each row of z (n, d).

    Parameters
    ----------
    z : Tensor, shape (n, d)
        Samples, on any device.
    count : int
        Neighbours per sample; fewer where there are not as many.
    metric : {"distance", "absolute cosine"}
        What makes a sample near.
    columns : int
        Samples that a row is compared with at a time.
    """
    if metric not in METRICS:
        raise ValueError(f"metric={metric!r} must be one of {', '.join(METRICS)}")
    n = len(z)
    count = min(count, n - 1)
    if metric != "distance":
        z = torch.nn.functional.normalize(z, dim=1, eps=torch.finfo(z.dtype).tiny)
    norms = z.square().sum(dim=1)
    found = [_nearest_of(z, norms, start, count, metric, columns) for start in range(0, n, ROWS)]
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
    z: Tensor, norms: Tensor, start: int, count: int, metric: str, columns: int
) -> tuple[Tensor, Tensor]:
    """Neighbours of the rows from `start` on: numbers and closeness."""
    rows, parts = z[start : start + ROWS], []
    for low in range(0, len(z), columns):
        others = z[low : low + columns]
        if metric == "distance":  # up to a factor, and to what is the same for the whole row
            near = torch.addmm(norms[None, low : low + columns], rows, others.mT, beta=-0.5)
        else:
            near = (rows @ others.mT).abs_()
        near.diagonal(start - low).fill_(-torch.inf)  # oneself
        values, index = near.topk(min(count, near.shape[1]), dim=1)
        parts.append((values, index + low))
    best, index = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    if len(parts) > 1:
        best, order = best.topk(count, dim=1)
        index = index.gather(1, order)
    if metric == "distance":
        best = 2 * best - norms[start : start + ROWS, None]
    return index, best


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
