"""The latents of all samples during a fit, and their moments."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kscn.data import Source
from kscn.errors import TrainingError
from kscn.nn import DeepNetwork
from kscn.runtime.blocks import Blocks
from kscn.runtime.device import CPU
from kscn.runtime.group import ALONE, Group
from kscn.runtime.lazy import KEEP_BYTES, Lazy, kept
from kscn.runtime.minibatches import Minibatches


def encode(batches: Minibatches, network: DeepNetwork, keep_bytes: int = KEEP_BYTES) -> Source:
    """The latents of all samples: where that is small a tensor, else encoded whenever read."""
    steps = batches.scaling, network.autoencoder, network.latent
    lazy = Lazy(batches.source, steps, batches.device, batches.shape, name="the latents")
    return kept(lazy, keep_bytes)


def moments(
    codes: Source, group: Group = ALONE, device: torch.device = CPU
) -> tuple[Tensor, Tensor]:
    """Mean (d,) and covariance (d, d) of codes, which must carry something to cluster by.

    With a `group`, `codes` are those of this process and the moments those of all.
    """
    d = codes.shape[0]
    total = torch.zeros(d, dtype=torch.float64, device=device)
    second = torch.zeros(d, d, dtype=torch.float64, device=device)
    for _, z in Blocks(codes, torch.float64, device):
        total += z.sum(dim=0)
        second += z.mT @ z
    (n,) = group.add(len(codes))
    mean, second = group.sum(total) / n, group.sum(second)
    covariance = second / n - mean[:, None] * mean
    energy, spread = float(second.trace()) / n, float(covariance.trace())
    if not np.isfinite(energy):
        raise TrainingError(
            "the latent is no longer finite after pretraining; lower learning_rate and fit again."
        )
    if spread <= 1e-10 * max(energy, 1e-30):
        raise TrainingError(
            "the latent collapsed: the autoencoder gives all samples the same code, so there is "
            "nothing to cluster; lower learning_rate, train longer, or use another seed."
        )
    return mean, covariance
