"""Starts of k-subspaces from the neighbour graph of a sample.

A graph says which samples belong together where single starts of k-subspaces do not: most of one
subspace's nearest lie on it. The clusters of the graph are the start, and k-subspaces goes on from
there.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.neighbours.graph import graph_size, nearest, similarity_graph
from kscn.neighbours.local import affordable, local_subspace_clusters
from kscn.neighbours.spectral import graph_clusters
from kscn.subspaces import ScatterSums, Subspaces
from kscn.subspaces.search import Problem, empty_clusters_allowed

# Samples in a graph, so many or so many per cluster; a sample of more is thinned out at random.
ROWS, ROWS_PER_CLUSTER = 2048, 40


@empty_clusters_allowed()
def graph_start(problem: Problem, rows: int | None = None) -> Subspaces:
    """A start for a search, from at most so many `rows` of it (`graph_rows`)."""
    seed = int(torch.randint(2**31, (1,), generator=problem.generator))
    part = _thinned(problem, rows or graph_rows(problem.k))
    dim = int(problem.dims.median())
    found = neighbour_clusters(part.z, part.k, dim, affine=part.affine, seed=seed)
    labels = torch.from_numpy(found).long().to(part.z.device)
    sums = ScatterSums(part.k, part.z.shape[1], part.affine, part.z.device)
    sums.add(part.z.double(), labels, part.weights)
    return sums.subspaces(_fitting_dims(part, sums)).to(torch.float32)


def neighbour_clusters(
    z: Tensor, k: int, dim: int | None = None, *, affine: bool = False, seed: int = 0
) -> NDArray:
    """k clusters of the rows of z (n, d), labels (n,), by local subspaces of dimension `dim`.

    Where these would take too long, and where the dimension is not known, clusters are those of the
    nearest: on the lines of smallest angle, or for affine subspaces by distance.
    """
    n, d = z.shape
    if dim is not None and affordable(n, d, k, dim, affine):
        return local_subspace_clusters(z, k, dim, affine=affine, more=(2,), seed=seed)
    metric = "distance" if affine else "absolute cosine"
    count = graph_size(n, k)
    return graph_clusters(similarity_graph(nearest(z, count, metric), count, metric), k, seed)


def _fitting_dims(problem: Problem, sums: ScatterSums) -> Tensor:
    """The dimensions (k,) of the problem, dealt out so that the widest cluster gets the most."""
    if int(problem.dims.min()) == problem.p:
        return problem.dims
    spectra = sums.spectra().double()
    share = spectra / spectra.sum(dim=1, keepdim=True).clamp(min=1e-300)
    wide = torch.special.entr(share).sum(dim=1).argsort(descending=True).cpu()
    dims = torch.empty_like(problem.dims)
    dims[wide] = problem.dims.sort(descending=True).values
    return dims


def graph_rows(k: int) -> int:
    """Samples that a graph of k clusters takes in at most."""
    return max(ROWS, ROWS_PER_CLUSTER * k)


def _thinned(problem: Problem, size: int) -> Problem:
    if len(problem.z) <= size:
        return problem
    rows = torch.randperm(len(problem.z), generator=problem.generator)[:size].to(problem.z.device)
    weights = None if problem.weights is None else problem.weights[rows]
    return replace(problem, z=problem.z[rows], weights=weights)
