"""Soft assignment to k subspaces, and the loss by which network and bases learn from it (EDESC).

A latent z belongs to subspace j with the share

    s_j = (|D_j^T z|^2 + eta p) / sum_l (|D_l^T z|^2 + eta p),

and these shares are drawn to a sharper version of themselves, as in DEC: t_j in proportion to
s_j^2 / sum over samples of s_j. The bases D are parameters like any other, kept near orthonormal by
two terms of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kscn.nn import IdentityLatent
from kscn.subspaces.bases import rows_times


class Bases(IdentityLatent):
    """k bases D_j beside the latent, so that they are trained with the network.

    Parameters
    ----------
    bases : Tensor, shape (k, d, p)
        Where they begin.
    """

    def __init__(self, bases: Tensor) -> None:
        super().__init__()
        self.bases = nn.Parameter(bases.clone())

    @property
    def flat(self) -> Tensor:
        """All bases side by side, (d, k p)."""
        k, d, p = self.bases.shape
        return self.bases.permute(1, 0, 2).reshape(d, k * p)

    def energies(self, z: Tensor) -> Tensor:
        """|D_j^T z|^2 of latents z (n, d), shape (n, k)."""
        k, _, p = self.bases.shape
        return rows_times(z, self.flat).unflatten(1, (k, p)).square().sum(dim=2)

    def shares(self, z: Tensor, eta: float) -> Tensor:
        """The soft assignment of latents z (n, d), shape (n, k)."""
        raised = self.energies(z) + eta * self.bases.shape[2]
        return raised / raised.sum(dim=1, keepdim=True)

    def norm_error(self) -> Tensor:
        """Root of the summed squares by which the columns' squared lengths differ from 1."""
        return torch.linalg.vector_norm(self.bases.square().sum(dim=1) - 1)

    def overlap(self) -> Tensor:
        """Root of the summed squares of inner products between columns of different bases."""
        inner = self.flat.mT @ self.flat
        k, _, p = self.bases.shape
        between = 1 - torch.block_diag(*torch.ones(k, p, p)).to(inner)
        return torch.linalg.vector_norm(inner * between)


def sharpened(shares: Tensor) -> Tensor:
    """The target of shares (n, k): squared, divided by cluster sizes, summing to 1 in each row."""
    weight = shares.square() / shares.sum(dim=0).clamp(min=torch.finfo(shares.dtype).tiny)
    return weight / weight.sum(dim=1, keepdim=True)


class ShareLoss:
    """beta KL(target | shares) / k, plus what keeps the bases orthonormal.

    Parameters
    ----------
    bases : Bases
        Trained by this loss.
    target : Tensor, shape (n, k)
        Shares to come to, of all samples.
    beta, eta : float
        As in `EDESC`.
    orthogonality : float
        Weight of the two terms on the bases.
    """

    def __init__(
        self, bases: Bases, target: Tensor, *, beta: float, eta: float, orthogonality: float
    ) -> None:
        self.bases = bases
        self.target = target
        self.beta = beta
        self.eta = eta
        self.orthogonality = orthogonality

    def __call__(self, z: Tensor, indices: Tensor) -> Tensor:
        """The loss of latents z (b, d) of the samples `indices` (b,)."""
        target = self.target[indices]
        log_shares = self.bases.shares(z, self.eta).log()
        # A mean over clusters too, as the authors have it.
        divergence = nn.functional.kl_div(log_shares, target, reduction="sum") / target.numel()
        # Norms and not their squares: bases begin with a common direction, so that squares would
        # outweigh all else and turn the bases faster than latents can follow.
        apart = self.bases.norm_error() + self.bases.overlap()
        return self.beta * divergence + self.orthogonality * apart
