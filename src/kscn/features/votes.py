"""Votes of the nearest of a sample whose clusters are known, as the last step of features.

Clusters of a neighbour graph have shapes that no subspace of the input has. A vector is described
by what share of its nearest among that sample belongs to each cluster: the root of the shares has
unit length, and every cluster is one coordinate axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.features.base import FeatureMap
from kscn.modelparts import check_array, integer

if TYPE_CHECKING:
    from typing_extensions import Self

# Rows in a product; always as many, so that the features of a sample do not depend on the others.
ROWS = 256
# Squared distances below this share of the farthest asked count as none: a member of the sample
# outweighs all others on the question of itself.
NONE = 1e-4
MOST_CLUSTERS = 2**16


class Votes(nn.Module):
    """Roots of the shares of votes (n, k) for vectors (n, d).

    The `count` nearest among samples (m, d) vote for their labels (m,), and a vote weighs the more,
    the nearer it comes from.
    """

    samples: Tensor
    half_norms: Tensor
    votes: Tensor

    def __init__(self, samples: Tensor, labels: Tensor, n_clusters: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.register_buffer("samples", samples.float())
        self.register_buffer("half_norms", samples.float().square().sum(dim=1) / 2)
        self.register_buffer("votes", nn.functional.one_hot(labels, n_clusters).float())

    def forward(self, z: Tensor) -> Tensor:
        """Roots of shares (n, k)."""
        z = z.float()
        index = (z @ self.samples.T - self.half_norms).topk(self.count, dim=1).indices
        # Anew by differences: that of products has too few digits for what is near.
        apart = (z[:, None] - self.samples[index]).square().sum(dim=2)
        least = NONE * apart.max(dim=1, keepdim=True).values + torch.finfo(z.dtype).tiny
        weight = least / (apart + least)
        votes = (self.votes[index] * weight[:, :, None]).sum(dim=1)
        return (votes / votes.sum(dim=1, keepdim=True)).sqrt()


class VotedFeatures(FeatureMap):
    """Shares of the votes of a vector's nearest in a sample, each cluster on its axis.

    It is made by `of_sample`, which is given the clusters; `fit` is not its way.

    Attributes
    ----------
    votes_ : Votes
    """

    votes_: Votes

    def fit(self, X: Any, y: Any = None) -> Self:
        """Refuse: X alone has no clusters."""
        raise NotImplementedError("VotedFeatures are made by VotedFeatures.of_sample.")

    @classmethod
    def of_sample(cls, samples: Tensor, labels: Tensor, n_clusters: int, count: int) -> Self:
        """The map by the `count` nearest among samples (m, d) of known clusters (m,)."""
        return cls()._prepare(samples, labels, n_clusters, count)

    def _prepare(self, samples: Tensor, labels: Tensor, n_clusters: int, count: int) -> Self:
        self.sample_shape_ = (samples.shape[1],)
        self.votes_ = Votes(samples, labels, n_clusters, min(count, len(samples)))
        self._n_features_out = n_clusters
        return self.to(samples.device)

    def _input_dtype(self, stored: np.dtype) -> np.dtype:
        return np.dtype(np.float32)

    def _apply(self, samples: Tensor) -> Tensor:
        z = samples.reshape(len(samples), -1).float()
        whole = nn.functional.pad(z, (0, 0, 0, -len(z) % ROWS))
        return torch.cat([self.votes_(block) for block in whole.split(ROWS)])[: len(z)]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """How many vote and how many clusters there are; the sample and its clusters."""
        votes = self.votes_
        arrays = {
            "samples": votes.samples.cpu().numpy(),
            "labels": votes.votes.argmax(dim=1).to(torch.int32).cpu().numpy(),
        }
        return {"count": votes.count, "n_clusters": self._n_features_out}, arrays

    def _restore(self, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> None:
        samples, labels = (np.array(arrays[name]) for name in ("samples", "labels"))
        check_array("samples", samples, (None, None), ("float32",))
        check_array("labels", labels, samples.shape[:1], ("int32",))
        count = integer(config, "count", 1, len(samples))
        # One number per sample and cluster is made of this: no more clusters than samples.
        k = integer(config, "n_clusters", 1, min(MOST_CLUSTERS, len(samples)))
        if labels.min() < 0 or labels.max() >= k:
            raise ValueError(f"labels must be from 0 to {k - 1}")
        self._prepare(torch.from_numpy(samples), torch.from_numpy(labels).long(), k, count)
