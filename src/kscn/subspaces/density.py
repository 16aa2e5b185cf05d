"""How well clusters explain samples that they were not fitted to, whatever they were found by.

Distances to subspaces of different dimensions, in coordinates that were scaled in different ways,
cannot be compared. But all of them come down to clusters of the same samples. If every cluster is
taken to be a Gaussian, half of the samples say how probable the other half is. Groups that were
merged, cut in two or mixed with their mirror image are no Gaussians, and pay for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

HALVES = 2
# Variance that every direction has at the least, as a share of that of all samples.
FLOOR = 1e-6
# Standard errors by which a gain exceeds chance.
SURE = 2.0


def held_out_densities(z: Tensor, labels: Tensor) -> Tensor:
    """Log density (m,) of samples under the Gaussians that clusters of the other half are.

    Parameters
    ----------
    z : Tensor, shape (m, d)
        Samples in an order that says nothing.
    labels : Tensor, shape (m,)
        Their clusters, numbered from 0.
    """
    z = z.double()
    floor = FLOOR * float(z.var(dim=0).mean()) + torch.finfo(z.dtype).tiny
    half = torch.arange(len(z), device=z.device) % HALVES
    found = z.new_empty(len(z))
    for number in range(HALVES):
        seen = half != number
        logs = [
            _log_density(z[~seen], z[seen & (labels == i)], int(seen.sum()), floor)
            for i in range(int(labels.max()) + 1)
        ]
        found[~seen] = torch.stack(logs, dim=1).logsumexp(dim=1)
    return found


def clearly_better(densities: Sequence[Tensor]) -> int:
    """The clusters with the highest mean of log densities (m,), if chance is ruled out.

    The first ones stay where no others are better by SURE standard errors of the difference.
    """
    first = densities[0]
    best = 0
    for number, other in enumerate(densities):
        gain = other - first
        sure = gain.mean() > SURE * gain.std() / len(gain) ** 0.5
        if sure and other.mean() > densities[best].mean():
            best = number
    return best


def shrunk_covariance(z: Tensor) -> Tensor:
    """Covariance (d, d) of few samples, as near to a multiple of the identity as they leave open.

    The share of the identity is that of Ledoit and Wolf: the expected error of the covariance over
    its distance from the identity.
    """
    n, d = z.shape
    z = z - z.mean(dim=0)
    covariance = z.mT @ z / n
    ball = covariance.trace() / d * torch.eye(d, dtype=z.dtype, device=z.device)
    away = (covariance - ball).square().sum()
    error = (z.square().sum(dim=1).square().mean() - covariance.square().sum()) / n
    share = (error / away).clamp(0, 1) if away > 0 else z.new_ones(())
    return torch.lerp(covariance, ball, share)


def _log_density(z: Tensor, members: Tensor, of: int, floor: float) -> Tensor:
    """Log of a cluster's share times its density at z, (m,)."""
    d = z.shape[1]
    if len(members) < 2:
        return z.new_full((len(z),), -1e300)
    eye = torch.eye(d, dtype=z.dtype, device=z.device)
    covariance = shrunk_covariance(members) + floor * eye
    root = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(root, (z - members.mean(dim=0)).mT, upper=False)
    volume = root.diagonal().log().sum() + 0.5 * d * math.log(2 * math.pi)
    return math.log(len(members) / of) - 0.5 * white.square().sum(dim=0) - volume
