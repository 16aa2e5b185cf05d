"""Starts of k-subspaces from graphs of a sample: its neighbours, or an ensemble of short runs.

A graph says which samples belong together where single starts of k-subspaces do not: most of one
subspace's nearest lie on it. Its clusters are the start, and k-subspaces goes on from there.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.neighbours.ensemble import ensemble_clusters
from kscn.neighbours.graph import graph_size, nearest, similarity_graph
from kscn.neighbours.local import affordable, local_subspace_clusters
from kscn.neighbours.spectral import spectral_clusters, spectral_embedding
from kscn.subspaces import ScatterSums
from kscn.subspaces.search import Candidates, Problem

# Samples in a graph, at least and per cluster; a sample of more is thinned out at random.
ROWS, ROWS_PER_CLUSTER = 2048, 40


def graph_starts(problem: Problem, kind: str) -> Candidates:
    """A start of the kind "neighbours" or "ensemble" for a search, on a part of its sample."""
    seed = int(torch.randint(2**31, (1,), generator=problem.generator))
    part = _thinned(problem)
    make = ensemble_clusters if kind == "ensemble" else neighbour_clusters
    dim = int(problem.dims.median())
    found = make(part.z, part.k, dim, affine=part.affine, seed=seed)
    labels = torch.from_numpy(found).long().to(part.z.device)
    sums = ScatterSums(part.k, part.z.shape[1], part.affine, part.z.device)
    sums.add(part.z.double(), labels, part.weights)
    exact = sums.subspaces(_fitting_dims(part, sums)).to(torch.float32)
    used = torch.arange(part.p, device=part.z.device) < exact.dims[:, None]
    offsets = None if exact.offsets is None else exact.offsets[None]
    return Candidates(exact.bases[None], offsets, used[None])


def neighbour_clusters(
    z: Tensor, k: int, dim: int | None = None, *, affine: bool = False, seed: int = 0
) -> NDArray:
    """k clusters of the rows of z (n, d), labels (n,), by local subspaces of dimension `dim`.

    Local subspaces take n^2 time in the square of the coordinates that they lie in. Where that is
    too much, and where the dimension is not known, clusters are those of the nearest: on the lines
    of smallest angle, or for affine subspaces by distance.
    """
    n, d = z.shape
    if dim is not None and affordable(n, d, k, dim, affine):
        return local_subspace_clusters(z, k, dim, affine=affine, more=(2,), seed=seed)
    metric = "distance" if affine else "absolute cosine"
    count = graph_size(n, k)
    graph = similarity_graph(nearest(z, count, metric), count, metric)
    return spectral_clusters(spectral_embedding(graph, k, seed)[1], k, seed)


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


def _thinned(problem: Problem) -> Problem:
    size = graph_rows(problem.k)
    if len(problem.z) <= size:
        return problem
    rows = torch.randperm(len(problem.z), generator=problem.generator)[:size].to(problem.z.device)
    weights = None if problem.weights is None else problem.weights[rows]
    return replace(problem, z=problem.z[rows], weights=weights)
