"""Where the subspaces of a run are: among the samples themselves, or in a network's latents.

A space turns rows of samples into points, and leads from a subspace back to samples.
"""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.nn import WhitenedLatent
from kscn.nn.rows import in_whole_blocks


class SubspaceSpace:
    """Samples as they are, near the subspaces of a `KSubspaces` model."""

    name = "samples"
    decodes = True  # whether it leads from a subspace back to samples

    def __init__(self, model: Any, shape: tuple[int, ...]) -> None:
        own = deepcopy(model.model_.assignment).cpu().double()
        self.shape, self.subspaces, self._shift = shape, own.subspaces, own.shift
        self.dims = np.asarray(model.subspace_dims_)
        self.dim = own.bases.shape[1]

    def points(self, rows: NDArray) -> Tensor:
        """Points (n, d) in float64 of samples (n, *shape), less the shift of affine subspaces."""
        points = torch.from_numpy(rows.reshape(len(rows), -1).astype(np.float64))
        return points if self._shift is None else points - self._shift

    def directions(self, cluster: int, members: Tensor) -> tuple[Tensor, Tensor]:
        """How members (n, d) of a cluster spread about their mean within its subspace.

        Orthonormal axes (d, p) of falling spread, and the standard deviations (p,) along them.
        """
        basis = self.subspaces.bases[cluster, :, : int(self.dims[cluster])]
        inside = (members - members.mean(dim=0)) @ basis
        values, rotation = torch.linalg.eigh(inside.mT @ inside / len(members))
        return basis @ rotation.flip(-1), values.flip(-1).clamp(min=0).sqrt()

    def angles(self) -> NDArray:
        """The smallest angle between each two subspaces, in degrees (k, k)."""
        bases = self.subspaces.bases
        cosines = torch.linalg.matrix_norm(bases.mT[:, None] @ bases, ord=2)  # (k, k)
        return torch.rad2deg(cosines.clamp(max=1).acos()).numpy()

    def spectrum(self, members: Tensor) -> Tensor:
        """Shares of the energy of members (n, d) along their own directions, descending."""
        about = members if self.subspaces.offsets is None else members - members.mean(dim=0)
        energy = torch.linalg.svdvals(about).square()
        return energy / energy.sum().clamp(min=1e-300)

    def samples(self, steps: Tensor, members: NDArray) -> NDArray:
        """Samples (m, *shape) at the mean of members moved by steps (m, d)."""
        mean = members.mean(axis=0, dtype=np.float64)
        return mean + steps.reshape(len(steps), *self.shape).numpy()


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

    def samples(self, steps: Tensor, members: NDArray) -> NDArray:
        """Samples that the network decodes at the mean code of members, moved by steps (m, d)."""
        model = self._model
        codes = torch.from_numpy(np.asarray(model._codes(members)))
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
