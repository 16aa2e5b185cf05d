"""Votes of a vector's nearest in a sample of known clusters."""

from typing import Any, Self

import torch
from torch import Tensor, nn

# Squared distances below this share of the farthest asked count as none: a member of the sample
# outweighs all others on the question of itself.
NO_DISTANCE = 1e-4


class Votes(nn.Module):
    """Roots of the shares of votes (n, k) for vectors (n, d).

    Clusters of a neighbour graph have shapes that no subspace of the input has. What share of a
    vector's nearest belongs to each cluster describes it instead: the root of the shares has unit
    length, and every cluster is one coordinate axis. The `count` nearest among samples (m, d) vote
    for their labels (m,), and a vote weighs the more, the nearer it comes from.
    """

    samples: Tensor
    labels: Tensor

    def __init__(self, n_samples: int, n_features: int, n_clusters: int, count: int) -> None:
        super().__init__()
        self.n_clusters, self.count = n_clusters, count
        self.register_buffer("samples", torch.zeros(n_samples, n_features))
        self.register_buffer("labels", torch.zeros(n_samples, dtype=torch.int64))

    @classmethod
    def of(cls, samples: Tensor, labels: Tensor, n_clusters: int, count: int) -> Self:
        """The votes of the `count` nearest among samples (m, d) of known clusters (m,)."""
        m, d = samples.shape
        made = cls(m, d, n_clusters, min(count, m))
        made.samples, made.labels = samples.float(), labels.long()
        return made

    def forward(self, z: Tensor) -> Tensor:
        """Roots of shares (n, k)."""
        half_norms = self.samples.square().sum(dim=1) / 2
        nearness = nn.functional.linear(z, self.samples, -half_norms)
        index = nearness.topk(self.count, dim=1).indices
        # Anew by differences: that of products has too few digits for what is near.
        apart = (z[:, None] - self.samples[index]).square().sum(dim=2)
        farthest = apart.max(dim=1, keepdim=True).values
        least = NO_DISTANCE * farthest + torch.finfo(z.dtype).tiny
        weight = least / (apart + least)
        votes = nn.functional.one_hot(self.labels[index], self.n_clusters)
        votes = (votes * weight[:, :, None]).sum(dim=1)
        return (votes / votes.sum(dim=1, keepdim=True)).sqrt()

    def config(self) -> dict[str, Any]:
        """The arguments that build this step again."""
        m, d = self.samples.shape
        return {
            "n_samples": m,
            "n_features": d,
            "n_clusters": self.n_clusters,
            "count": self.count,
        }

    def fault(self) -> str | None:
        """Say in words why these are no votes, or return None when they are."""
        if self.labels.min() < 0 or self.labels.max() >= self.n_clusters:
            return f"the labels of its votes are not from 0 to {self.n_clusters - 1}"
        return None
