"""What an autoencoder is trained by: the error of reconstruction, and what the subspaces ask of it.

A loss is a mean over the samples of a mini-batch. Processes hold a part of it each, and get shares
that add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kscn.runtime.group import ALONE, Group
from kscn.subspaces import Subspaces


@dataclass(frozen=True)
class LossOptions:
    """Settings of the losses, and the processes that share a mini-batch."""

    temperature: float = 0.1  # divides energies to make logits of them
    balance: float = 0.0  # weight of the divergence of cluster sizes from `shares`
    shares: Tensor | None = None  # (k,), of all samples in each cluster; None for equal ones
    group: Group = ALONE


# Latents z (b, d), the subspaces, the clusters to learn (b,) with -1 for those that teach nothing,
# and how many samples the whole mini-batch has.
Loss = Callable[[Tensor, Subspaces, Tensor, float, LossOptions], Tensor]


def squared_error(restored: Tensor, clean: Tensor, samples: float) -> Tensor:
    """Mean over samples of the error summed over pixels, as in the paper."""
    return torch.nn.functional.mse_loss(restored, clean, reduction="sum") / samples


def energies(z: Tensor, subspaces: Subspaces) -> Tensor:
    """Squared norms |S_i^T z|^2 of the projections on every subspace, differentiable, (b, k)."""
    k, d, p = subspaces.bases.shape
    # Products are rounded by the layout of their factors, which a state does not keep.
    stacked = subspaces.bases.permute(1, 0, 2).reshape(d, k * p).contiguous()
    return (z @ stacked).unflatten(1, (k, p)).square().sum(dim=2)


def residual_loss(
    z: Tensor, subspaces: Subspaces, targets: Tensor, samples: float, options: LossOptions
) -> Tensor:
    """The paper's: min_i |z - S_i S_i^T z|^2, to the subspace that is nearest now."""
    nearest = energies(z, subspaces).amax(dim=1)
    return (z.square().sum(dim=1) - nearest).sum() / samples


def separation_loss(
    z: Tensor, subspaces: Subspaces, targets: Tensor, samples: float, options: LossOptions
) -> Tensor:
    """Cross-entropy of projection energies against the clusters of the unchanged samples.

    Pulling a latent to its own subspace never asks subspaces to differ. Here energies are logits:
    a latent is drawn to its own subspace and away from the others, and since the network sees
    augmented samples while the clusters come from clean ones, it learns what does not matter. The
    divergence of the mean prediction of a batch from `shares` keeps clusters from swallowing each
    other.
    """
    logits = energies(z, subspaces) / options.temperature
    loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
    counted = (targets >= 0).sum().to(z.dtype)[None]
    probabilities = logits.softmax(dim=1).sum(dim=0) if options.balance else z.new_zeros(0)
    # All that the processes have to know of each other's parts, in one message.
    sums = options.group.total(torch.cat([counted, probabilities]))
    loss = loss / sums[0].clamp(min=1)
    if options.balance:
        mean = sums[1:] / samples
        logarithm = mean.clamp(min=1e-12).log()
        if options.shares is not None:
            logarithm = logarithm - options.shares.log()
        loss = loss + options.balance * options.group.once((mean * logarithm).sum())
    return loss


LOSSES: dict[str, Loss] = {"residual": residual_loss, "separation": separation_loss}
