"""How good a clustering is, without labels: whether samples find back to their cluster.

Two questions are asked of the labels of any candidate, in several views of the same samples.
*Subspaces*: fitted to the members of each cluster outside a fold, do they send the samples of the
fold back to their own cluster? *Neighbours*: what share of a sample's nearest carries its label?
Both are averaged over clusters, so that small ones count as much as large ones, and multiplied. A
clustering that is only an artefact of one view has a low value in the others, and one that is real
need not show in all of them: the mean of the best two views counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Random folds; neighbours that are asked at most; views that count.
FOLDS, ASKED, BEST_VIEWS = 5, 10, 2
# Dimension of the subspaces: at most this, a third of the space, and a quarter of a usual cluster.
DIM, SHARE, MEMBERS_PER_DIM = 20, 3, 4
# Rounds of the iteration for leading directions, and up to which dimension a full decomposition is
# as fast. The span only has to tell clusters apart.
ROUNDS, SMALL = 3, 48


@dataclass(frozen=True)
class View:
    """One way to look at the sample.

    Attributes
    ----------
    z : Tensor, shape (n, d)
        The samples.
    index : Tensor, shape (n, K)
        The nearest of each, as rows of z.
    """

    z: Tensor
    index: Tensor


@dataclass(frozen=True)
class Consistency:
    """What a clustering scores: in all, and per view the two parts of it."""

    value: float
    subspaces: list[float]
    neighbours: list[float]


def self_consistency(views: Sequence[View], labels: Tensor, k: int, seed: int = 0) -> Consistency:
    """Self-consistency of the labels (n,) of k clusters, from 0 to 1."""
    n = len(labels)
    generator = torch.Generator().manual_seed(seed)
    fold = (torch.randperm(n, generator=generator) % FOLDS).to(labels.device)
    own = [subspace_consistency(view.z, labels, k, fold) for view in views]
    near = [neighbour_consistency(view.index, labels, k) for view in views]
    product = sorted((a * b for a, b in zip(own, near, strict=True)), reverse=True)[:BEST_VIEWS]
    return Consistency(sum(product) / len(product), own, near)


def subspace_consistency(z: Tensor, labels: Tensor, k: int, fold: Tensor) -> float:
    """Share of members that subspaces of the other folds send back, averaged over clusters."""
    dim = max(1, min(DIM, z.shape[1] // SHARE, len(z) // (MEMBERS_PER_DIM * k)))
    back = energies_across(z, labels, k, fold, dim).argmax(dim=1) == labels
    return _mean_over_clusters(back.to(z.dtype), labels, k)


def neighbour_consistency(index: Tensor, labels: Tensor, k: int) -> float:
    """Share of a sample's nearest that carry its label, averaged over clusters."""
    asked = max(3, min(ASKED, len(labels) // (3 * k)))
    alike = labels[index[:, :asked]] == labels[:, None]
    return _mean_over_clusters(alike.float().mean(dim=1), labels, k)


def energies_across(z: Tensor, labels: Tensor, k: int, fold: Tensor, dim: int) -> Tensor:
    """Energy (n, k) of each sample in the subspaces of every cluster's members outside its fold."""
    d = z.shape[1]
    scatter = _scatter(z, labels * FOLDS + fold, k * FOLDS).view(k, FOLDS, d, d)
    bases = leading_directions(scatter.sum(dim=1, keepdim=True) - scatter, dim)  # (k, F, d, p)
    energy = z.new_empty(len(z), k)
    for number in range(FOLDS):
        rows = (fold == number).nonzero().flatten()
        stacked = bases[:, number].permute(1, 0, 2).reshape(d, -1)
        energy[rows] = (z[rows] @ stacked).unflatten(1, (k, dim)).square_().sum(dim=2)
    return energy


def leading_directions(scatter: Tensor, dim: int) -> Tensor:
    """An orthonormal basis of about the `dim` leading directions of matrices (..., d, d)."""
    d = scatter.shape[-1]
    if d <= SMALL:
        return torch.linalg.eigh(scatter).eigenvectors[..., -dim:]
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(d, dim, generator=generator, dtype=scatter.dtype).to(scatter.device)
    vectors = scatter @ start
    for _ in range(ROUNDS - 1):
        vectors = scatter @ torch.linalg.qr(vectors).Q
    return torch.linalg.qr(vectors).Q


def _scatter(z: Tensor, group: Tensor, groups: int) -> Tensor:
    """Sums of z z^T over the members of every group, (groups, d, d)."""
    order = group.argsort(stable=True)
    counts = torch.bincount(group, minlength=groups).tolist()
    found = z.new_zeros(groups, z.shape[1], z.shape[1])
    for number, members in enumerate(z[order].split(counts)):
        if len(members):
            found[number] = members.mT @ members
    return found


def _mean_over_clusters(values: Tensor, labels: Tensor, k: int) -> float:
    """Mean over the clusters of the mean of their members; an empty cluster counts as 0."""
    total = values.new_zeros(k).index_add_(0, labels, values)
    return float((total / torch.bincount(labels, minlength=k).clamp(min=1)).mean())
