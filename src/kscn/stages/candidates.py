"""Candidates: cheap clusterings of a sample, by several methods in several spaces.

In every space: spectral clustering of the neighbour graph, by distance and by angle; k-means; and
k-subspaces; for few vectors, spectral clustering of local subspaces. Of several spaces together:
k-means of a layout of their joint graph. None of them is right everywhere (k-subspaces on
handwritten digits, graphs on single cells, points on flowers), so all are made, and
`kscn.stages.select` weighs them. A candidate is labels of the sample and where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from kscn.neighbours import (
    Neighbours,
    layout_clusters,
    local_subspace_clusters,
    nearest,
    nearest_distinct,
    similarity_graph,
)
from kscn.neighbours.consistency import ASKED
from kscn.neighbours.graph import graph_size
from kscn.neighbours.local import affordable
from kscn.neighbours.spectral import spectral_clusters, spectral_embedding
from kscn.stages.spaces import Space
from kscn.subspaces.search import Problem, initial_candidates, sweep

# Neighbours in a graph, as shares of the root of the members of a usual cluster.
NEIGHBOURS = (0.5, 0.9)
# More coordinates than clusters, as a share of k, damped by this power of their eigenvalues: the
# second reading of a graph, in which a small group far away does not take a whole coordinate.
MORE, DAMPED = 0.5, 4
# Neighbours by angle are those by distance up to this share: one graph does for both.
SAME = 0.95
# Dimensions of subspaces, if clusters have as many members for each of them.
DIMS, MEMBERS_PER_DIM, SHARE = (5, 15), 15, 3
SWEEPS = 15
# Dimension of local affine subspaces.
LOCAL_DIM = 3
KMEANS_STARTS = 3
LAYOUT = "layout"


@dataclass(frozen=True)
class Candidate:
    """Labels (m,) of the sample, the space that they were found in, and by what."""

    labels: NDArray
    space: str
    method: str

    @property
    def kind(self) -> str:
        """The method without its numbers."""
        return self.method.split(",")[0]


def neighbours_of(space: Space, k: int) -> Neighbours:
    """As many neighbours as graphs and questions need."""
    return nearest_distinct(space.z, max(ASKED, *graph_sizes(len(space.z), k)))


def graph_sizes(n: int, k: int) -> list[int]:
    """Numbers of neighbours per sample of the graphs to try."""
    return list(dict.fromkeys(graph_size(n, k, share) for share in NEIGHBOURS))


def candidates(
    space: Space, near: Neighbours, k: int, starts: int, seed: int
) -> Iterator[Candidate]:
    """All candidates of one space."""
    sizes = graph_sizes(len(space.z), k)
    for size in sizes:
        yield from _spectral(space, near, k, size, "distance", seed)
    if space.lines:
        angles = nearest(space.z, sizes[-1], "absolute cosine")
        same = angles.index == near.index[:, : sizes[-1]]
        if float(same.float().mean()) < SAME:
            yield from _spectral(space, angles, k, sizes[0], "absolute cosine", seed)
    rows = space.z.cpu().numpy()
    means = KMeans(k, n_init=KMEANS_STARTS, random_state=seed).fit_predict(rows)
    yield Candidate(means, space.name, "k-means")
    if space.lines:
        yield from _k_subspaces(space, k, starts, seed)
    elif affordable(len(rows), rows.shape[1], k, LOCAL_DIM, affine=True):
        labels = local_subspace_clusters(space.z, k, LOCAL_DIM, affine=True, seed=seed)
        yield Candidate(labels, space.name, f"local subspaces, dimension {LOCAL_DIM}")


def laid_out(
    near: Sequence[Neighbours], groups: Mapping[str, Sequence[int]], k: int, seed: int
) -> list[Candidate]:
    """Clusters of layouts of the joint neighbour graphs of named groups of spaces."""
    found = layout_clusters(near, list(groups.values()), k, seed)
    return [Candidate(labels, name, LAYOUT) for labels, name in zip(found, groups, strict=True)]


def _spectral(
    space: Space, near: Neighbours, k: int, size: int, metric: str, seed: int
) -> Iterator[Candidate]:
    graph = similarity_graph(near, size, metric)
    values, vectors = spectral_embedding(graph, k + math.ceil(MORE * k), seed)
    told = f"graph, {size} nearest by {metric}"
    yield Candidate(spectral_clusters(vectors[:, :k], k, seed), space.name, told)
    if metric == "distance":
        damped = vectors * np.maximum(values, 0) ** DAMPED
        yield Candidate(spectral_clusters(damped, k, seed), space.name, f"{told}, damped")


def _k_subspaces(space: Space, k: int, starts: int, seed: int) -> Iterator[Candidate]:
    m, d = space.z.shape
    room = max(1, min(d // SHARE, m // (MEMBERS_PER_DIM * k)))
    for dim in dict.fromkeys(min(dim, room) for dim in DIMS):
        if not 0 < dim < d:
            continue
        generator = torch.Generator().manual_seed(seed)
        dims = torch.full((k,), dim)
        problem = Problem(space.z, None, dims, affine=False, trim=0.0, generator=generator)
        ended, objective = sweep(problem, initial_candidates(problem, "k-means", starts), SWEEPS)
        bases = ended.bases[int(objective.argmin())]
        energy = torch.einsum("md,kdp->mkp", space.z, bases).square().sum(dim=2)
        labels = energy.argmax(dim=1).cpu().numpy()
        yield Candidate(labels, space.name, f"k-subspaces, dimension {dim}")
