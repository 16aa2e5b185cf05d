"""Neighbours by local subspace: samples around which the data spreads in the same directions.

Two samples of one subspace can lie far apart, and samples of two subspaces close together where
these intersect. What tells them apart is the subspace around each: that of the sample and its
nearest. Samples are linked by how well these agree (local subspace affinity). Coordinates are
whitened first: in the leading k p of them, independent subspaces of dimension p are orthogonal.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.neighbours.graph import Neighbours, nearest, similarity_graph
from kscn.neighbours.spectral import graph_clusters
from kscn.subspaces.decompositions import eigh

COUNT = 20  # neighbours per sample in the graph
# Nearest samples that local subspaces are fitted to, beyond their dimension: no number is right for
# all data.
MORE = (0, 1, 2, 4)
# Factor of the mean sin^2 in the weight of an edge: exp(-2 sum of sin^2) for four dimensions.
SHARP = 8
FLAT = 1e-6  # directions that hold less than this share of the largest are rounding
COST = 1e10  # arithmetic at most for comparing all local subspaces, some seconds


def affordable(n: int, d: int, k: int, dim: int, affine: bool) -> bool:
    """Whether local subspaces of n samples can be compared in seconds.

    That takes n^2 time in the square of the coordinates that they lie in.
    """
    return (n * min(d + affine, k * (dim + affine))) ** 2 <= COST


def local_subspace_clusters(
    z: Tensor,
    k: int,
    dim: int,
    *,
    affine: bool = False,
    more: Sequence[int] = MORE,
    seed: int = 0,
) -> NDArray:
    """k clusters of the rows of z (n, d), labels (n,), by their local subspaces of dimension `dim`.

    Local subspaces are fitted to so many nearest samples `more` than their dimension. A graph is
    made for each number and their sum is clustered, since none is right for all data.
    """
    if affine:
        # An affine subspace is a linear one of one dimension more once every sample has a further
        # coordinate: constant, and as large as a usual sample.
        z, dim = z - z.mean(dim=0), dim + 1
        usual = z.square().sum(dim=1).mean().sqrt()
        z = torch.cat([z, usual.expand(len(z), 1)], dim=1)
    rows = whitened(z, k * dim)
    near = [nearest_by_local_subspace(rows, dim, COUNT, dim + size) for size in more]
    graphs = [similarity_graph(each, COUNT, "closeness") for each in near]
    return graph_clusters(sum(graphs[1:], graphs[0]), k, seed)


def whitened(z: Tensor, count: int) -> Tensor:
    """The `count` leading coordinates of z (n, d), uncentred, each with the same mean square.

    Rows are brought to unit length: what counts is the line that a sample lies on. Fewer
    coordinates where the samples span fewer.
    """
    exact = z.double()
    values, vectors = eigh(exact.mT @ exact)
    spread = values.clamp(min=0).sqrt().flip(0)[:count]
    spanned = max(1, int((spread > FLAT * spread[0]).sum()))
    spread = torch.where(spread > 0, spread, 1.0)[:spanned]
    rows = (exact @ (vectors.flip(1)[:, :spanned] / spread)).to(z)
    return torch.nn.functional.normalize(rows, dim=1, eps=torch.finfo(z.dtype).tiny)


def local_bases(z: Tensor, dim: int, size: int) -> Tensor:
    """Orthonormal bases (n, d, dim) of each sample and the `size` samples nearest to its line."""
    near = nearest(z, size, "absolute cosine").index
    found = []
    for rows, index in zip(z.split(1024), near.split(1024), strict=True):
        group = torch.cat([rows[:, None], z[index]], dim=1)  # (b, size + 1, d)
        found.append(torch.linalg.svd(group, full_matrices=False).Vh[:, :dim].mT)
    return torch.cat(found)


def nearest_by_local_subspace(
    z: Tensor, dim: int, count: int, size: int | None = None
) -> Neighbours:
    """The `count` samples whose local subspaces agree best with that of each row of z (n, d).

    These are fitted to `size` nearest samples, `dim` + 2 unless given. Closeness is exp(-8 mean of
    sin^2 of the principal angles), between 0 and 1.
    """
    size = min(dim + 2 if size is None else size, len(z) - 1)
    dim = min(dim, z.shape[1], size + 1)
    near = nearest(_projectors(local_bases(z, dim, size)), count)
    sines = (-near.closeness).clamp(min=0) / (2 * dim)  # mean of sin^2
    return Neighbours(near.index, torch.exp(-SHARP * sines))


def _projectors(bases: Tensor) -> Tensor:
    """S S^T of every basis (n, d, p) as a vector of its d (d + 1) / 2 different entries.

    Squared distances of these vectors are twice the sum of sin^2 of the principal angles.
    """
    d = bases.shape[1]
    row, column = torch.triu_indices(d, d, device=bases.device)
    factor = torch.where(row == column, 1.0, 2**0.5).to(bases.dtype)
    return torch.cat([(part @ part.mT)[:, row, column] * factor for part in bases.split(1024)])
