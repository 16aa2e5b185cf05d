"""Ensembles of k-subspaces: samples are near that many cheap runs put into one cluster.

One run of k-subspaces from a random start is poor, but what two samples of one subspace have in
common is that most runs keep them together (EKSS). The share of runs that do is the co-association.
It is only ever computed in blocks of rows, of which the largest entries are kept.
"""

from __future__ import annotations

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.neighbours.graph import Neighbours, nearest, similarity_graph
from kscn.neighbours.spectral import spectral_clusters, spectral_embedding
from kscn.subspaces.search import Problem, candidate_labels, initial_candidates, sweep

# Cheap runs, sweeps of each, and entries of the co-association that are kept per sample.
RUNS, SWEEPS, COUNT = 100, 3, 10


def ensemble_clusters(
    z: Tensor, k: int, dim: int, *, affine: bool = False, runs: int = RUNS, seed: int = 0
) -> NDArray:
    """k clusters of the rows of z (n, d), labels (n,), that many runs of k-subspaces speak for.

    Parameters
    ----------
    z : Tensor, shape (n, d)
        Samples, on any device, in float32; centred if the subspaces are affine.
    k : int
        Number of clusters.
    dim : int
        Dimension of the subspaces.
    affine : bool
        Whether they may miss the origin.
    runs : int
        Number of runs.
    seed : int
        Of the runs, the eigenvectors and of k-means.
    """
    generator = torch.Generator().manual_seed(seed)
    dims = torch.full((k,), dim)
    problem = Problem(z, None, dims, affine=affine, trim=0.0, generator=generator)
    near = co_association(ensemble_labels(problem, runs), COUNT)
    graph = similarity_graph(near, COUNT, "closeness")
    return spectral_clusters(spectral_embedding(graph, k, seed)[1], k, seed)


def co_association(labels: Tensor, count: int) -> Neighbours:
    """The `count` samples that share a cluster with each sample most often.

    Parameters
    ----------
    labels : Tensor, shape (B, n)
        Clusters of the samples in B runs.
    count : int
        Neighbours per sample; fewer where there are not as many.

    Returns
    -------
    Neighbours
        Closeness is the share of runs that put both into one cluster.
    """
    runs, n = labels.shape
    k = int(labels.max()) + 1
    places = labels.mT + k * torch.arange(runs, device=labels.device)  # (n, B)
    described = torch.zeros(n, runs * k, device=labels.device).scatter_(1, places, 1.0)
    near = nearest(described, count)  # minus twice the number of runs that tell the two apart
    return Neighbours(near.index, 1 + near.closeness / (2 * runs))


def ensemble_labels(problem: Problem, runs: int = RUNS, sweeps: int = SWEEPS) -> Tensor:
    """Labels (B, m) of B short runs of k-subspaces, each from a random start."""
    ended, _ = sweep(problem, initial_candidates(problem, "neighbourhood", runs), sweeps)
    return candidate_labels(problem, ended)
