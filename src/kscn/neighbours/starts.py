"""Starts of k-subspaces from graphs of a sample: its neighbours, or an ensemble of short runs.

A graph says which samples belong together where single starts of k-subspaces do not: most of one
subspace's nearest lie on it. And though one run of k-subspaces from a random start is poor, most
runs keep two samples of one subspace together (EKSS). The clusters of the graph are the start, and
k-subspaces goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.neighbours.graph import Neighbours, graph_size, nearest, similarity_graph
from kscn.neighbours.local import affordable, local_subspace_clusters
from kscn.neighbours.spectral import empty_clusters_allowed, graph_clusters
from kscn.subspaces import ScatterSums, Subspaces
from kscn.subspaces.search import Problem, candidate_labels, initial_candidates, sweep


@dataclass(frozen=True)
class Rules:
    """The numbers of the starts."""

    # Samples in a graph, so many or so many per cluster; a sample of more is thinned out at random.
    rows: int = 2048
    rows_per_cluster: int = 40
    # Of an ensemble: runs, sweeps of each, and entries of the co-association kept per sample. Runs
    # may be poor, since it is what most of them say that counts.
    runs: int = 100
    sweeps: int = 3
    count: int = 10


RULES = Rules()


@empty_clusters_allowed()
def graph_starts(problem: Problem, kind: str) -> Subspaces:
    """A start (1, k, d, p) of the kind "neighbours" or "ensemble" for a search, on some samples."""
    seed = int(torch.randint(2**31, (1,), generator=problem.generator))
    part = _thinned(problem)
    make = ensemble_clusters if kind == "ensemble" else neighbour_clusters
    dim = int(problem.dims.median())
    found = make(part.z, part.k, dim, affine=part.affine, seed=seed)
    labels = torch.from_numpy(found).long().to(part.z.device)
    sums = ScatterSums(part.k, part.z.shape[1], part.affine, part.z.device)
    sums.add(part.z.double(), labels, part.weights)
    exact = sums.subspaces(_fitting_dims(part, sums)).to(torch.float32)
    return exact.map(lambda part: part[None])


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


def ensemble_clusters(
    z: Tensor, k: int, dim: int, *, affine: bool = False, runs: int = RULES.runs, seed: int = 0
) -> NDArray:
    """k clusters of the rows of z (n, d), labels (n,), that many runs of k-subspaces speak for.

    Samples are in float32, and centred if the subspaces are affine.
    """
    generator = torch.Generator().manual_seed(seed)
    dims = torch.full((k,), dim)
    problem = Problem(z, None, dims, affine=affine, trim=0.0, generator=generator)
    ended, _ = sweep(problem, initial_candidates(problem, "neighbourhood", runs), RULES.sweeps)
    near = co_association(candidate_labels(problem, ended), RULES.count)
    return graph_clusters(similarity_graph(near, RULES.count, "closeness"), k, seed)


def co_association(labels: Tensor, count: int) -> Neighbours:
    """The `count` samples that share a cluster with each sample most often in runs (B, n).

    Closeness is the share of runs that put both into one cluster.
    """
    runs, n = labels.shape
    k = int(labels.max()) + 1
    places = labels.mT + k * torch.arange(runs, device=labels.device)  # (n, B)
    described = torch.zeros(n, runs * k, device=labels.device).scatter_(1, places, 1.0)
    near = nearest(described, count)  # minus twice the number of runs that tell the two apart
    return Neighbours(near.index, 1 + near.closeness / (2 * runs))


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
    return max(RULES.rows, RULES.rows_per_cluster * k)


def _thinned(problem: Problem) -> Problem:
    size = graph_rows(problem.k)
    if len(problem.z) <= size:
        return problem
    rows = torch.randperm(len(problem.z), generator=problem.generator)[:size].to(problem.z.device)
    weights = None if problem.weights is None else problem.weights[rows]
    return replace(problem, z=problem.z[rows], weights=weights)
