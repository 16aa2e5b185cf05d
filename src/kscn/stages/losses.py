"""What the subspaces ask of the network: the part of the loss beside the reconstruction."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from kscn.runtime.group import ALONE, Group
from kscn.subspaces import Subspaces


class SubspaceLoss(Protocol):
    """A differentiable mean over the samples of a mini-batch, or the share of it of a process."""

    def __call__(self, z: Tensor, indices: Tensor) -> Tensor:
        """The loss of latents z (b, d), which belong to the samples `indices` (b,)."""


def energies(z: Tensor, subspaces: Subspaces) -> Tensor:
    """Squared norms of the projections on every subspace, differentiable, shape (b, k)."""
    k, d, p = subspaces.bases.shape
    stacked = subspaces.bases.permute(1, 0, 2).reshape(d, k * p)
    return (z @ stacked).unflatten(1, (k, p)).square().sum(dim=2)


class ResidualLoss:
    """The paper's: squared distance of every latent to the subspace that is nearest to it now."""

    def __init__(self, subspaces: Subspaces, group: Group = ALONE) -> None:
        self.subspaces = subspaces
        self.group = group

    def __call__(self, z: Tensor, indices: Tensor) -> Tensor:
        """Mean squared distance to the nearest subspace."""
        nearest = energies(z, self.subspaces).amax(dim=1)
        (samples,) = self.group.add(len(z))
        return (z.square().sum(dim=1) - nearest).sum() / samples


class SeparationLoss:
    """Cross-entropy of projection energies against the clusters of the unchanged samples.

    Pulling a latent to its own subspace never asks subspaces to differ. Here energies are logits:
    a latent is drawn to its own subspace and away from the others, and since the network sees
    augmented samples while the clusters come from clean ones, it learns what does not matter.

    Parameters
    ----------
    subspaces : Subspaces
        Fixed during the epoch.
    labels : Tensor, shape (n,)
        Cluster of every sample; -1 for the ones too far from it to learn from.
    temperature : float
        Divides the energies, which lie between 0 and 1 for unit latents.
    balance : float
        Weight of the divergence of the mean prediction of a batch from `shares`, which keeps
        clusters from swallowing each other. 0 leaves it out.
    group : Group
        The processes that have the batch between them.
    shares : Tensor, shape (k,), optional
        The share of all samples that each cluster should have; the same for all unless given.
    """

    def __init__(
        self,
        subspaces: Subspaces,
        labels: Tensor,
        temperature: float,
        balance: float,
        group: Group = ALONE,
        shares: Tensor | None = None,
    ) -> None:
        self.shares = shares
        self.subspaces = subspaces
        self.labels = labels
        self.temperature = temperature
        self.balance = balance
        self.group = group

    def __call__(self, z: Tensor, indices: Tensor) -> Tensor:
        """Mean cross-entropy over the samples that count."""
        logits = energies(z, self.subspaces) / self.temperature
        target = self.labels[indices].to(z.device)
        loss = torch.nn.functional.cross_entropy(logits, target, ignore_index=-1, reduction="sum")
        # All that the processes have to know of each other's batches, in one message.
        counts = torch.stack([(target >= 0).sum().to(z.dtype), z.new_full((), len(z))])
        probabilities = logits.softmax(dim=1).sum(dim=0) if self.balance else z.new_zeros(0)
        sums = self.group.total(torch.cat([counts, probabilities]))
        loss = loss / sums[0].clamp(min=1)
        if self.balance:
            mean = sums[2:] / sums[1]
            logarithm = mean.clamp(min=1e-12).log()
            if self.shares is not None:
                logarithm = logarithm - self.shares.log()
            loss = loss + self.balance * self.group.once((mean * logarithm).sum())
        return loss
