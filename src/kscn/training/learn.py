"""A dense encoder that learns given clusters, so that they carry on to samples not seen before.

Clusters of a neighbour graph have shapes that no subspace of the input has. An encoder puts each
into a subspace of its own. It sees samples on the way to one of their nearest, which are mostly of
the same cluster: between neighbours nothing should change.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kscn.nn.dense import DenseEncoder
from kscn.subspaces import Subspaces
from kscn.training.device import seeded
from kscn.training.losses import energies

# Steps of mini-batches: so many, or so many passes over the sample if that is more.
STEPS, PASSES, BATCH = 400, 6, 256
PEAK_RATE, WEIGHT_DECAY = 3e-3, 1e-4
# How far towards a neighbour at most, out of how many.
TOWARDS, AMONG = 0.5, 5
TEMPERATURE, SMOOTHING = 0.1, 0.05


def coordinate_subspaces(k: int, p: int) -> Subspaces:
    """k subspaces of dimension p, orthogonal to each other, along the axes of R^(k p)."""
    return Subspaces(torch.eye(k * p).view(k * p, k, p).permute(1, 0, 2).contiguous())


def learned(
    z: Tensor, labels: Tensor, index: Tensor, subspaces: Subspaces, seed: int
) -> DenseEncoder:
    """An encoder that puts samples into the subspace of their cluster.

    Parameters
    ----------
    z : Tensor, shape (n, d)
        The samples.
    labels : Tensor, shape (n,)
        Their clusters.
    index : Tensor, shape (n, K)
        The nearest of each.
    subspaces : Subspaces
        One per cluster; latents have their ambient dimension.
    seed : int
        Of the weights and of all draws.
    """
    n, device = len(z), z.device
    with seeded(seed):
        encoder = DenseEncoder(z.shape[1], subspaces.ambient_dim)
    encoder.to(device).train()
    subspaces = subspaces.to(torch.float32, device)
    generator = torch.Generator().manual_seed(seed)
    batch = min(BATCH, n)
    steps = max(STEPS, PASSES * -(-n // batch))
    near = index[:, :AMONG]
    optimizer = torch.optim.AdamW(encoder.parameters(), PEAK_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=steps)
    for _ in range(steps):
        rows = torch.randint(n, (batch,), generator=generator).to(device)
        which = torch.randint(near.shape[1], (batch,), generator=generator).to(device)
        share = TOWARDS * torch.rand(batch, 1, generator=generator).to(device)
        seen = torch.lerp(z[rows], z[near[rows, which]], share)
        latent = nn.functional.normalize(encoder(seen), dim=1)
        logits = energies(latent, subspaces) / TEMPERATURE
        loss = nn.functional.cross_entropy(logits, labels[rows], label_smoothing=SMOOTHING)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    return encoder.eval()
