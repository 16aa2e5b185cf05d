"""What models of clusters say of samples that they were not fitted to.

Every model is fitted to the members of its cluster outside one fold and asked about the samples of
that fold. Two kinds: linear subspaces, and Gaussians, which have a mean and a covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kscn.subspaces import leading_directions
from kscn.subspaces.decompositions import eigh


@dataclass(frozen=True)
class Rules:
    """The numbers of models outside a fold."""

    folds: int = 5  # as in the growth of subspaces, where two were worse and ten hardly better
    # Numbers in all covariances of a fold together, and samples per dimension: where there are more
    # dimensions, the leading ones are used. 250,000 numbers chose the same in seven of seven pools.
    covariances: int = 100_000
    samples_per_dim: int = 4
    floor: float = 1e-3  # share of the mean variance that every direction has at least


HELD_OUT = Rules()


def random_rank(n: int, seed: int, device: torch.device) -> Tensor:
    """A random number from 0 to n - 1 for each of n samples; folds are its remainders."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).to(device)


def energies(z: Tensor, labels: Tensor, k: int, fold: Tensor, dim: int) -> Tensor:
    """Energy (n, k) of each sample in the subspaces of every cluster's members outside its fold."""
    d, folds = z.shape[1], HELD_OUT.folds
    scatter = _scatter(z, labels * folds + fold, k * folds).view(k, folds, d, d)
    bases = leading_directions(scatter.sum(dim=1, keepdim=True) - scatter, dim)  # (k, F, d, p)
    energy = z.new_empty(len(z), k)
    for number in range(folds):
        rows = (fold == number).nonzero().flatten()
        stacked = bases[:, number].permute(1, 0, 2).reshape(d, -1)
        energy[rows] = (z[rows] @ stacked).unflatten(1, (k, dim)).square_().sum(dim=2)
    return energy


def likelihoods(z: Tensor, labels: Tensor, k: int, fold: Tensor, rows: Tensor) -> Tensor:
    """Log density (m, k), up to a constant, of these rows for the Gaussian of every cluster.

    Its covariance is shrunk towards the mean covariance within clusters, as if d samples had been
    seen that have it: few members tell little about directions, many tell all.
    """
    most = min(math.isqrt(HELD_OUT.covariances // k), len(z) // HELD_OUT.samples_per_dim)
    z = z[:, : max(2, most)]
    d = z.shape[1]
    mean, covariance, empty = _gaussians(z, labels, k, fold, prior=d)
    root = torch.linalg.cholesky_ex(covariance).L  # (k, F, d, d)
    one = torch.eye(d, dtype=z.dtype, device=z.device).expand_as(root)
    scale = torch.linalg.solve_triangular(root, one, upper=False).mT
    centre = mean[..., None, :] @ scale  # (k, F, 1, d)
    found = scale.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1).mT[fold[rows]]  # (m, k)
    for number in range(HELD_OUT.folds):
        asked = (fold[rows] == number).nonzero().flatten()
        stacked = scale[:, number].permute(1, 0, 2).reshape(d, -1)
        scaled = (z[rows[asked]] @ stacked).unflatten(1, (k, d)) - centre[:, number, 0]
        found[asked] -= 0.5 * scaled.square_().sum(dim=2)
    return found.masked_fill_(empty.mT[fold[rows]], -torch.inf)


def unexplained(z: Tensor, labels: Tensor, k: int, fold: Tensor, most: int) -> Tensor:
    """Share of the variance that affine subspaces of 1 to `most` dimensions leave, (most,).

    Each sample is described by the subspace of its cluster's members outside its fold.
    """
    mean, covariance, _ = _gaussians(z, labels, k, fold, prior=0)
    bases = eigh(covariance)[1].flip(-1)[..., :most]
    apart = z - mean[labels, fold]
    inside = torch.einsum("nd,ndp->np", apart, bases[labels, fold]).square().sum(dim=0)
    left = apart.square().sum() - inside.cumsum(dim=0)
    return left.clamp(min=0) / (z - z.mean(dim=0)).square().sum()


def _gaussians(
    z: Tensor, labels: Tensor, k: int, fold: Tensor, prior: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Means (k, F, d) and covariances (k, F, d, d) outside each fold, and which are of nobody.

    `prior` is for how many samples the mean covariance within clusters counts in that of each.
    """
    d, group = z.shape[1], labels * HELD_OUT.folds + fold
    members = torch.bincount(labels, minlength=k).clamp(min=1)
    centre = z.new_zeros(k, d).index_add_(0, labels, z) / members[:, None]
    # From the cluster's centre: where clusters are tight and far from the origin, products of the
    # samples themselves would leave nothing but rounding. Sums and counts come with the products.
    apart = torch.cat([z - centre[labels], z.new_ones(len(z), 1)], dim=1)
    scatter = _scatter(apart, group, k * HELD_OUT.folds).view(k, HELD_OUT.folds, d + 1, d + 1)
    scatter = scatter.sum(dim=1, keepdim=True) - scatter
    count = scatter[..., -1, -1]
    shift = scatter[..., -1, :-1] / count.clamp(min=1)[..., None]
    within = (
        scatter[..., :-1, :-1] - count[..., None, None] * shift[..., None] * shift[..., None, :]
    )
    mean = centre[:, None] + shift
    usual = within.sum(dim=0) / count.sum(dim=0)[:, None, None]
    covariance = (within + prior * usual) / (count + prior).clamp(min=1)[..., None, None]
    least = HELD_OUT.floor * usual.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    least = least.clamp(min=torch.finfo(z.dtype).tiny)
    covariance.diagonal(dim1=-2, dim2=-1).add_(least[:, None])
    return mean, covariance, count == 0


def _scatter(z: Tensor, group: Tensor, groups: int) -> Tensor:
    """Sums of z z^T over the members of every group, (groups, d, d)."""
    order = group.argsort(stable=True)
    counts = torch.bincount(group, minlength=groups).tolist()
    found = z.new_zeros(groups, z.shape[1], z.shape[1])
    for number, members in enumerate(z[order].split(counts)):
        if len(members):
            found[number] = members.mT @ members
    return found
