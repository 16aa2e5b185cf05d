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

from kscn.features.base import FeatureMap, tensor_of
from kscn.modelparts import integer

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

    Parameters
    ----------
    samples : Tensor, shape (m, d)
        Vectors whose clusters are known.
    labels : Tensor, shape (m,)
        Their clusters.
    n_clusters : int
        How many clusters there are.
    count : int
        How many of the nearest vote. A vote weighs the more, the nearer it comes from.
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
        features = cls()
        features.sample_shape_, features.n_features_in_ = (samples.shape[1],), samples.shape[1]
        features.votes_ = Votes(samples, labels, n_clusters, min(count, len(samples)))
        features._n_features_out = n_clusters
        return features.to(samples.device)

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        self.votes_.to(device)
        return super().to(device)

    def _given(self, rows: NDArray) -> Tensor:
        return tensor_of(rows, np.dtype(np.float32)).to(self.device)

    def _apply(self, samples: Tensor) -> Tensor:
        z = samples.reshape(len(samples), -1).float()
        return torch.cat([self._block(block) for block in z.split(ROWS)])

    def _block(self, z: Tensor) -> Tensor:
        whole = nn.functional.pad(z, (0, 0, 0, ROWS - len(z)))
        return self.votes_(whole)[: len(z)]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """How many vote and how many clusters there are; the sample and its clusters."""
        votes = self.votes_
        arrays = {
            "samples": votes.samples.cpu().numpy(),
            "labels": votes.votes.argmax(dim=1).to(torch.int32).cpu().numpy(),
        }
        return {"count": votes.count, "n_clusters": self._n_features_out}, arrays

    @classmethod
    def _of_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        samples, labels = (np.array(arrays[name]) for name in ("samples", "labels"))
        if samples.ndim != 2 or samples.dtype != np.float32 or not np.isfinite(samples).all():
            raise ValueError("samples must be finite vectors of float32")
        if labels.shape != samples.shape[:1] or labels.dtype != np.int32 or not len(labels):
            raise ValueError("every sample must have one int32 label")
        count = integer(config, "count", 1, len(samples))
        # One number per sample and cluster is made of this: no more clusters than samples.
        k = integer(config, "n_clusters", 1, min(MOST_CLUSTERS, len(samples)))
        if labels.min() < 0 or labels.max() >= k:
            raise ValueError(f"labels must be from 0 to {k - 1}")
        return cls.of_sample(torch.from_numpy(samples), torch.from_numpy(labels).long(), k, count)
