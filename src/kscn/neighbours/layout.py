"""A layout of a neighbour graph: points in a few dimensions with the neighbours of the graph.

The method is UMAP's (McInnes, Healy, Melville 2018), on a bounded sample and with many edges at a
time. Every sample is linked to its nearest by weights that fall with the distance, in units of the
sample's own: dense and sparse groups are linked alike. Linked points are drawn together, and every
point is pushed away from some drawn at random. Groups that touch in the input come apart, so that
k-means finds them where coordinates of the graph's spectrum do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sparse
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

from kscn.neighbours.consistency import margin
from kscn.neighbours.graph import Neighbours
from kscn.neighbours.spectral import spectral_embedding
from kscn.parallel import one_thread

# Neighbours of everyone: UMAP's number, or of small clusters a third of the members, but some.
MOST, FEWEST, SHARE = 15, 4, 3
DIMENSIONS = 10  # of the points that k-means gets; two or three are for pictures
# Epochs, parts of the edges of each, and points that everyone is pushed away from for each edge.
# With fewer parts points get so many pulls at once that they overshoot; 100 epochs with 5 pushes
# took twice the time and gave much the same.
EPOCHS, PARTS, PUSHES = 60, 10, 3
LARGEST = 4.0  # no coordinate of a pull or push is larger, as in UMAP
# Points at the distance d are linked with the probability 1 / (1 + a d^(2b)): UMAP's for a least
# distance of 0.
A, B = 1.93, 0.79
# The layout begins in a box of this half side, to which coordinates that reach so many standard
# deviations are cut: a few nodes far from all others must not press these together.
SIDE, DEVIATIONS = 3.0, 3.0
ROUNDS = 40  # of the search for a sample's own unit
# Share of the points at either end of a coordinate that are brought in before k-means: a point that
# was pushed far away is no cluster.
ENDS = 0.01
# Runs of that k-means, points that all of them may have together, and the share above the lowest
# sum of squares within which another end of it is as good. Cells of blood have ends within 3 %
# whose NMI is 72 or 77; of eight runs one in three misses the latter, of 20 none.
STARTS, POINTS, FEWEST_STARTS = 20, 120_000, 4
AS_GOOD = 0.05
DIFFERENT = 1e-3  # share by which the sums of two ends differ that are not the same


def layout_clusters(
    described: Sequence[Neighbours],
    groups: Sequence[Sequence[int]],
    k: int,
    seed: int = 0,
    measure: Callable[[NDArray], float] = lambda _: 0.0,
) -> list[NDArray]:
    """k clusters (n,) of each of several layouts of the same samples.

    k-means ends in several places whose sums of squares hardly differ, and rounding decides which
    is the lowest. So the sum only says which of them are good, and one of these is taken that has a
    clearly higher `measure` than the lowest.

    Parameters
    ----------
    described : sequence of Neighbours
        The nearest of the samples by distance, in one or more descriptions.
    groups : sequence of sequences of int
        For each layout the descriptions that it is of, by their numbers. The weight of an edge is
        the mean over these: samples that are near each other in many are drawn together most.
    k : int
        How many clusters to find.
    seed : int
        Of everything that is drawn.
    measure : callable, optional
        How good labels (n,) are, from 0 to 1. By default the lowest sum is taken.
    """
    graphs = []
    for neighbours in described:
        n, known = neighbours.index.shape
        count = min(known, MOST, max(FEWEST, n // (SHARE * k)))
        graphs.append(membership_graph(neighbours, count))
    joint = [sum(graphs[number] for number in group) / len(group) for group in groups]
    found = []
    # Threads gain a tenth on a quiet machine; on a busy one they wait for each other in every one
    # of thousands of small steps, and it takes thirty times as long.
    with one_thread():
        for places in layouts([graph.tocsr() for graph in joint], seed):
            inside = np.clip(places, *np.quantile(places, [ENDS, 1 - ENDS], axis=0))
            found.append(_taken(_good_ends(inside, k, seed), measure))
    return found


def _taken(ends: Sequence[NDArray], measure: Callable[[NDArray], float]) -> NDArray:
    """The first of these labels, unless others have a value that is higher by more than chance."""
    values = [measure(labels) for labels in ends]
    best = int(np.argmax(values))
    clearly = values[best] > values[0] + margin(values[best], len(ends[0]))
    return ends[best] if clearly else ends[0]


def _good_ends(places: NDArray, k: int, seed: int) -> list[NDArray]:
    """Labels (n,) of the ends of k-means that are nearly as low as the lowest, which is first."""
    draws = np.random.RandomState(seed)
    count = max(FEWEST_STARTS, min(STARTS, POINTS // len(places)))
    runs = [KMeans(k, n_init=1, random_state=draws).fit(places) for _ in range(count)]
    runs.sort(key=lambda run: run.inertia_)
    good = [run for run in runs if run.inertia_ <= (1 + AS_GOOD) * runs[0].inertia_]
    above = [1.0, *(b.inertia_ - (1 + DIFFERENT) * a.inertia_ for a, b in pairwise(good))]
    return [run.labels_ for run, more in zip(good, above, strict=True) if more > 0]


def membership_graph(neighbours: Neighbours, count: int) -> sparse.csr_array:
    """Symmetric graph (n, n) of the `count` nearest by distance, with weights from 0 to 1.

    The weight of a neighbour is exp(-(d - nearest) / unit), where the unit of a sample is such that
    its weights add up to log2(count); an edge is there if either end says so.
    """
    index = neighbours.index[:, :count].cpu().numpy()
    apart = np.sqrt(np.maximum(-neighbours.closeness[:, :count].double().cpu().numpy(), 0.0))
    farther = apart - apart[:, :1]
    n, count = index.shape
    low, high = np.zeros((n, 1)), np.full((n, 1), np.inf)
    unit = np.maximum(farther.mean(axis=1, keepdims=True), np.finfo(float).tiny)
    for _ in range(ROUNDS):
        large = np.exp(-farther / unit).sum(axis=1, keepdims=True) > np.log2(count)
        low, high = np.where(large, low, unit), np.where(large, unit, high)
        unit = np.where(np.isinf(high), 2 * unit, (low + high) / 2)
        unit = np.clip(unit, np.finfo(float).tiny, np.finfo(float).max / 4)
    begin = np.arange(0, n * count + 1, count)
    graph = sparse.csr_array((np.exp(-farther / unit).ravel(), index.ravel(), begin), shape=(n, n))
    return (graph + graph.T - graph * graph.T).tocsr()


def layouts(
    graphs: Sequence[sparse.csr_array], seed: int = 0, dimensions: int = DIMENSIONS
) -> list[NDArray]:
    """Points (n, dimensions) for the nodes of each of several symmetric graphs of n nodes.

    Weights are from 0 to 1. All graphs go through the same steps, as one that falls into parts:
    steps are so small that calling them takes as long as their arithmetic.
    """
    n = graphs[0].shape[0]
    generator = torch.Generator().manual_seed(seed)
    begun = np.concatenate([_smooth(graph, dimensions, seed) for graph in graphs])
    places = torch.from_numpy(begun).float()
    places += 1e-4 * torch.randn(places.shape, generator=generator)
    edges = sparse.block_diag(graphs).tocoo()
    weight = torch.from_numpy(edges.data / max(edges.data.max(), np.finfo(float).tiny)).float()
    ends = torch.from_numpy(np.stack(edges.coords).astype(np.int64))  # (2, edges)
    for epoch in range(EPOCHS):
        drawn = (torch.rand(len(weight), generator=generator) < weight).nonzero().flatten()
        drawn = drawn[torch.randperm(len(drawn), generator=generator)]
        for part in drawn.chunk(PARTS):
            one, other = ends[0, part], ends[1, part]
            far = torch.randint(n, (len(part), PUSHES), generator=generator)
            far += (one // n * n)[:, None]  # of the same graph
            _step(places, one, other, far, 1 - epoch / EPOCHS)
    return list(places.unflatten(0, (len(graphs), n)).numpy())


def _smooth(graph: sparse.csr_array, dimensions: int, seed: int) -> NDArray:
    """The smoothest coordinates of a graph but for the constant one, in a box."""
    vectors = spectral_embedding(graph, dimensions + 1, seed)[1][:, 1:]
    vectors = vectors - vectors.mean(axis=0)
    spread = np.maximum(vectors.std(axis=0), np.finfo(float).tiny)
    return SIDE / DEVIATIONS * np.clip(vectors / spread, -DEVIATIONS, DEVIATIONS)


def _step(places: Tensor, one: Tensor, other: Tensor, far: Tensor, rate: float) -> None:
    """Draw the ends of edges together, and push the first ends away from points `far` (m, c)."""
    here = places[one]
    apart = here - places[other]
    square = apart.square().sum(dim=1).clamp_(min=1e-6)
    power = square.pow(B - 1)
    pull = apart * (-2 * A * B * power / (1 + A * power * square))[:, None]
    pull.clamp_(-LARGEST, LARGEST)
    apart = here[:, None] - places[far]
    square = apart.square().sum(dim=2)
    push = apart * (2 * B / ((1e-3 + square) * (1 + A * square.pow(B))))[:, :, None]
    moves = torch.cat([pull + push.clamp_(-LARGEST, LARGEST).sum(dim=1), -pull])
    places.index_add_(0, torch.cat([one, other]), moves, alpha=rate)
