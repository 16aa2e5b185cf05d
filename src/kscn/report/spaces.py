"""Where the subspaces of a run are: among the samples themselves, or in a network's latents.

A space turns rows of samples into points, keeps the few sums per cluster that a report needs, and
leads from a subspace back to samples.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.nn import DeepNetwork, IdentityLatent, WhitenedLatent
from kscn.nn.rows import in_whole_blocks
from kscn.runtime.minibatches import encode
from kscn.subspaces import Subspaces


class SubspaceSpace:
    """Samples as they are, near the subspaces of a `KSubspaces` model."""

    name = "samples"
    decodes = True  # whether it leads from a subspace back to samples

    def __init__(self, model: Any, shape: tuple[int, ...]) -> None:
        self.shape = shape
        bases = torch.from_numpy(np.asarray(model.subspaces_, dtype=np.float64))
        offsets = getattr(model, "offsets_", None)
        if offsets is not None:  # any point of each subspace; `Subspaces` wants the nearest to 0
            offsets = torch.from_numpy(offsets.astype(np.float64))
            offsets = offsets - (bases @ (bases.mT @ offsets[..., None])).squeeze(-1)
        self.subspaces = Subspaces(bases, offsets)
        self.dims = np.asarray(model.subspace_dims_)
        k, self.dim, p = bases.shape
        self._counts = torch.zeros(k, dtype=torch.float64)
        self._first = torch.zeros(k, self.dim, dtype=torch.float64)
        self._second = torch.zeros(k, p, p, dtype=torch.float64)

    def points(self, rows: NDArray) -> Tensor:
        """Points (n, d) in float64 of samples (n, *shape)."""
        return torch.from_numpy(rows.reshape(len(rows), -1).astype(np.float64))

    def add(self, z: Tensor, labels: Tensor) -> None:
        """Add points (n, d) to the sums of their clusters; labels below zero are of none."""
        for i in labels[labels >= 0].unique().tolist():
            members = z[labels == i]
            inside = members @ self.subspaces.bases[i]
            self._counts[i] += len(members)
            self._first[i] += members.sum(dim=0)
            self._second[i] += inside.mT @ inside

    def mean(self, cluster: int) -> Tensor:
        """The mean (d,) of a cluster's members."""
        return self._first[cluster] / self._counts[cluster].clamp(min=1)

    def directions(self, cluster: int) -> tuple[Tensor, Tensor]:
        """How the members of a cluster spread about their mean within its subspace.

        Orthonormal axes (d, p) of falling spread, and the standard deviations (p,) along them.
        """
        p = int(self.dims[cluster])
        basis = self.subspaces.bases[cluster, :, :p]
        mean = self.mean(cluster) @ basis
        count = self._counts[cluster].clamp(min=1)
        covariance = self._second[cluster, :p, :p] / count - mean[:, None] * mean
        values, rotation = torch.linalg.eigh(covariance)
        return basis @ rotation.flip(-1), values.flip(-1).clamp(min=0).sqrt()

    def samples(self, cluster: int, steps: Tensor, members: NDArray) -> NDArray:
        """Samples (m, *shape) at the mean of a cluster's members moved by steps (m, d)."""
        return (self.mean(cluster) + steps).reshape(len(steps), *self.shape).numpy()


class EncodedSpace(SubspaceSpace):
    """What a model makes of samples: its features, or the latents of its network.

    Only the network of a `KSCN` model leads back, by its decoder. Whitened latents are unit
    vectors, normalize(W c + b) of codes c, which cannot be inverted alone. But near the mean code
    of a cluster a step in the latent is, to first order, a step r W^+ of the code, r being the mean
    length of W c + b; of all codes that give that latent it is the one nearest to the mean.
    """

    def __init__(self, model: Any, shape: tuple[int, ...]) -> None:
        super().__init__(model, shape)
        self._model = model
        self.decodes = hasattr(model, "autoencoder_")
        network = self.decodes or getattr(model, "encoder_", None) is not None
        self.name = "latents" if network else "features"

    def points(self, rows: NDArray) -> Tensor:
        """Features or latents (n, d) in float64 of samples (n, *shape)."""
        return torch.from_numpy(self._model.transform(rows)).double()

    def samples(self, cluster: int, steps: Tensor, members: NDArray) -> NDArray:
        """Samples that the network decodes at the mean code of members, moved by steps (m, d)."""
        model = self._model
        encoder = DeepNetwork(model.autoencoder_, IdentityLatent())
        codes = torch.from_numpy(np.asarray(encode(model._network_inputs(members), encoder)))
        network, latent = model.autoencoder_.to("cpu"), model.latent_.to("cpu")
        network.eval()
        with torch.inference_mode():
            if isinstance(latent, WhitenedLatent):
                length = torch.linalg.vector_norm(latent.linear(codes).double(), dim=1).mean()
                steps = length * steps @ torch.linalg.pinv(latent.linear.weight.double()).mT
            moved = (codes.double().mean(dim=0) + steps).float()
            restored = in_whole_blocks(network.decode, moved).reshape(len(steps), *self.shape)
            return model.scaling_.to("cpu").inverse(restored).numpy()


def space_of(model: Any, shape: tuple[int, ...]) -> SubspaceSpace:
    """The space of a fitted model's subspaces."""
    encoded = hasattr(model, "autoencoder_") or hasattr(model, "features_")
    return (EncodedSpace if encoded else SubspaceSpace)(model, shape)
