"""What the subspaces ask of the network: the part of the loss beside the reconstruction.

`LOSSES` has them by the name that `KSCN` takes as `loss`. To add one, derive a class from
`ClusterLoss` and put it there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from kscn.runtime.group import ALONE, Group
from kscn.subspaces import Subspaces


class SubspaceLoss(Protocol):
    """A differentiable mean over the samples of a mini-batch, or the share of it of a process."""

    def __call__(self, z: Tensor, indices: Tensor) -> Tensor:
        """The loss of latents z (b, d), which belong to the samples `indices` (b,)."""


@dataclass(eq=False)
class ClusterLoss(ABC):
    """A loss of the alternation, made anew for every epoch with what is known by then.

    Parameters
    ----------
    subspaces : Subspaces
        Where they are now.
    labels : Tensor, shape (n,), optional
        Cluster of every sample when the epoch began; -1 for the ones too far from it to learn
        from. Only where the class says that it `needs_labels`.
    temperature, balance : float
        Settings of `KSCN`.
    group : Group
        The processes that have the mini-batch between them; losses are shares that add up.
    shares : Tensor, shape (k,), optional
        The share of all samples that each cluster should have, where it is known.
    """

    subspaces: Subspaces
    labels: Tensor | None = None
    temperature: float = 0.1
    balance: float = 0.0
    group: Group = ALONE
    shares: Tensor | None = None

    needs_labels: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, z: Tensor, indices: Tensor) -> Tensor:
        """The loss of latents z (b, d), which belong to the samples `indices` (b,)."""


def energies(z: Tensor, subspaces: Subspaces) -> Tensor:
    """Squared norms of the projections on every subspace, differentiable, shape (b, k)."""
    k, d, p = subspaces.bases.shape
    stacked = subspaces.bases.permute(1, 0, 2).reshape(d, k * p)
    return (z @ stacked).unflatten(1, (k, p)).square().sum(dim=2)


class ResidualLoss(ClusterLoss):
    """The paper's: squared distance of every latent to the subspace that is nearest to it now."""

    def __call__(self, z: Tensor, indices: Tensor) -> Tensor:
        """Mean squared distance to the nearest subspace."""
        nearest = energies(z, self.subspaces).amax(dim=1)
        (samples,) = self.group.add(len(z))
        return (z.square().sum(dim=1) - nearest).sum() / samples


class SeparationLoss(ClusterLoss):
    """Cross-entropy of projection energies against the clusters of the unchanged samples.

    Pulling a latent to its own subspace never asks subspaces to differ. Here energies are logits:
    a latent is drawn to its own subspace and away from the others, and since the network sees
    augmented samples while the clusters come from clean ones, it learns what does not matter.

    `temperature` divides the energies, which lie between 0 and 1 for unit latents. `balance` weighs
    the divergence of the mean prediction of a batch from `shares` (equal ones unless given), which
    keeps clusters from swallowing each other; 0 leaves it out.
    """

    needs_labels = True

    def __call__(self, z: Tensor, indices: Tensor) -> Tensor:
        """Mean cross-entropy over the samples that count."""
        assert self.labels is not None
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


LOSSES: dict[str, type[ClusterLoss]] = {"residual": ResidualLoss, "separation": SeparationLoss}
