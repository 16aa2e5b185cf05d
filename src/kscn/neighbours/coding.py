"""How many bits samples take if every cluster has a code of its own: lossy coding length.

A code for the members of one cluster that lets them be off by a given distance spends bits on the
directions in which they spread by more than that, and hardly any on the others (Ma, Derksen, Hong,
Wright 2007). So clusters that lie in subspaces are short, whatever their dimensions, and need not
be compact: samples far apart along a subspace cost little, one sample off it costs a direction.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def coding_length(z: Tensor, labels: Tensor, k: int, distance: float) -> float:
    """Nats for all rows of z (n, d) in k clusters, labels (n,), known up to about `distance`.

    A cluster of m members with mean c and covariance S takes (m + d) / 2 log det(I + d S / e^2) for
    them and d / 2 log(1 + |c|^2 / e^2) for its mean; which cluster a member is in takes
    -log(m / n).
    """
    z = z.double()
    n, d = z.shape
    one = torch.eye(d, dtype=z.dtype, device=z.device)
    length = z.new_zeros(())
    for cluster in range(k):
        members = z[labels == cluster]
        m = len(members)
        if m == 0:
            continue
        mean = members.mean(dim=0)
        apart = members - mean
        root = torch.linalg.cholesky_ex(one + d / (distance**2 * m) * (apart.mT @ apart)).L
        length += (m + d) * root.diagonal().log().sum()
        length += d / 2 * (mean.square().sum() / distance**2).log1p() - m * math.log(m / n)
    return float(length)
