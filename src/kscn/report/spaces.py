"""Where the clusters of a run are looked at: the samples themselves, or a network's latents.

A space turns rows of samples into points, says how far these are from each subspace, keeps the
few sums per cluster that a report needs, and leads from a subspace back to samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.nn import IdentityLatent, WhitenedLatent
from kscn.runtime.latents import Encoder, each_alone, encode, evaluating
from kscn.subspaces import ScatterSums, Subspaces


class SampleSpace:
    """Samples as flat vectors, with nothing known about subspaces: runs that left labels only."""

    subspaces: Subspaces | None = None
    dims: NDArray = np.empty(0, dtype=np.int64)
    name = "samples"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.dim = int(np.prod(shape))

    def points(self, rows: NDArray) -> Tensor:
        """Points (n, d) in float64 of samples (n, *shape)."""
        return torch.from_numpy(rows.reshape(len(rows), -1).astype(np.float64))

    def add(self, rows: NDArray, labels: Tensor) -> Tensor:
        """The points of a block, after adding them to the sums of their clusters."""
        return self.points(rows)


class SubspaceSpace(SampleSpace):
    """Where samples are points near the subspaces of a model; `counts` (k,) are members so far."""

    def __init__(self, model: Any, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        bases = torch.from_numpy(np.asarray(model.subspaces_, dtype=np.float64))
        offsets = getattr(model, "offsets_", None)
        if offsets is not None:  # any point of each subspace; `Subspaces` wants the nearest to 0
            offsets = torch.from_numpy(offsets.astype(np.float64))
            offsets = offsets - (bases @ (bases.mT @ offsets[..., None])).squeeze(-1)
        self.subspaces: Subspaces = Subspaces(bases, offsets)
        self.dims = np.asarray(model.subspace_dims_)
        k, d, p = bases.shape
        self.dim = d
        self.counts = torch.zeros(k, dtype=torch.float64)
        self._first = torch.zeros(k, d, dtype=torch.float64)
        self._inner = torch.zeros(k, p, dtype=torch.float64)
        self._inner2 = torch.zeros(k, p, p, dtype=torch.float64)
        self._spectra = getattr(model, "spectra_", None)

    @property
    def spectra(self) -> NDArray | None:
        """Eigenvalues (k, d) of each cluster's scatter, descending, where the model keeps them."""
        return self._spectra

    def add(self, rows: NDArray, labels: Tensor) -> Tensor:
        """The points of a block, after adding them to the sums of their clusters."""
        z = self.points(rows)
        self._add_points(z, labels)
        return z

    def _add_points(self, z: Tensor, labels: Tensor) -> None:
        for i in labels.unique().tolist():
            if i < 0:
                continue
            members = z[labels == i]
            inside = members @ self.subspaces.bases[i]
            self.counts[i] += len(members)
            self._first[i] += members.sum(dim=0)
            self._inner[i] += inside.sum(dim=0)
            self._inner2[i] += inside.mT @ inside

    def _mean(self, cluster: int) -> Tensor:
        return self._first[cluster] / self.counts[cluster].clamp(min=1)

    def directions(self, cluster: int) -> tuple[Tensor, Tensor]:
        """How the members of a cluster spread about their mean within its subspace.

        Orthonormal axes (d, p) of falling spread, and the standard deviations (p,) along them.
        """
        p = int(self.dims[cluster])
        count = self.counts[cluster].clamp(min=1)
        mean = self._inner[cluster, :p] / count
        covariance = self._inner2[cluster, :p, :p] / count - mean[:, None] * mean
        values, rotation = torch.linalg.eigh(covariance)
        axes = self.subspaces.bases[cluster, :, :p] @ rotation.flip(-1)
        return axes, values.flip(-1).clamp(min=0).sqrt()

    def coordinates(self, cluster: int, points: Tensor) -> Tensor:
        """Where points (m, d) are along `directions`, in standard deviations from the mean."""
        axes, spread = self.directions(cluster)
        return (points - self._mean(cluster)) @ axes / spread.clamp(min=1e-300)


class PixelSpace(SubspaceSpace):
    """Samples as they are, near the subspaces of a `KSubspaces` model."""

    def samples(self, cluster: int, steps: Tensor) -> NDArray:
        """Samples (m, *shape) at the mean of a cluster's members moved by steps (m, d)."""
        return (self._mean(cluster) + steps).reshape(len(steps), *self.shape).numpy()


class EncodedSpace(SubspaceSpace):
    """What a model makes of samples: its features, or the latents of its network.

    By itself it is a way in only. A `KSCNPlus` has no decoder that would lead back to samples.
    """

    def __init__(self, model: Any, shape: tuple[int, ...]) -> None:
        super().__init__(model, shape)
        self._model = model
        self._sums = ScatterSums(len(self.counts), self.dim, affine=False)
        network = getattr(model, "autoencoder_", None) or getattr(model, "encoder_", None)
        self.name = "features" if network is None else "latents"

    @property
    def spectra(self) -> NDArray:
        """Eigenvalues of each cluster's scatter, descending."""
        return self._sums.spectra().numpy()

    def points(self, rows: NDArray) -> Tensor:
        """Features or latents (n, d) in float64 of samples (n, *shape)."""
        return torch.from_numpy(self._model.transform(rows)).double()

    def _add_points(self, z: Tensor, labels: Tensor) -> None:
        super()._add_points(z, labels)
        self._sums.add(z, labels)


class LatentSpace(EncodedSpace):
    """The latents of a `KSCN` model, with the way back through its decoder.

    Whitened latents are unit vectors, normalize(W c + b) of codes c, which cannot be inverted
    alone. But near the mean code of a cluster a step in the latent is, to first order, a step
    r W^+ of the code, r being the mean length of W c + b; of all codes that give that latent it is
    the one nearest to the mean.
    """

    def __init__(self, model: Any, shape: tuple[int, ...]) -> None:
        super().__init__(model, shape)
        self._encode = Encoder(model.autoencoder_, IdentityLatent())
        self._codes: Tensor | None = None  # (k, code) sums
        self._lengths = torch.zeros_like(self.counts)

    def points(self, rows: NDArray) -> Tensor:
        """Latents (n, d) in float64 of samples (n, *shape)."""
        return self._latents(self._codes_of(rows))

    def _codes_of(self, rows: NDArray) -> Tensor:
        codes = encode(self._model._network_inputs(rows), self._encode)
        return torch.from_numpy(np.asarray(codes))

    def _latents(self, codes: Tensor) -> Tensor:
        latent = self._model.latent_.to("cpu")
        with evaluating(latent), torch.inference_mode():
            return each_alone(latent, codes).double()

    def add(self, rows: NDArray, labels: Tensor) -> Tensor:
        """The latents of a block, after adding them to the sums of their clusters."""
        codes = self._codes_of(rows)
        z = self._latents(codes)
        self._add_points(z, labels)
        if self._codes is None:
            self._codes = torch.zeros(len(self.counts), codes.shape[1], dtype=torch.float64)
        inside = labels >= 0
        self._codes.index_add_(0, labels[inside], codes[inside].double())
        latent = self._model.latent_
        if isinstance(latent, WhitenedLatent):
            with torch.inference_mode():
                lengths = torch.linalg.vector_norm(latent.linear(codes), dim=1).double()
            self._lengths.index_add_(0, labels[inside], lengths[inside])
        return z

    def samples(self, cluster: int, steps: Tensor) -> NDArray:
        """Samples that the network decodes at the mean code moved by latent steps (m, d)."""
        assert self._codes is not None
        count = self.counts[cluster].clamp(min=1)
        latent = self._model.latent_
        if isinstance(latent, WhitenedLatent):
            back = torch.linalg.pinv(latent.linear.weight.detach().double())  # (code, d)
            steps = (self._lengths[cluster] / count) * steps @ back.mT
        codes = (self._codes[cluster] / count + steps).float()
        network, scaling = self._model.autoencoder_.to("cpu"), self._model.scaling_.to("cpu")
        with evaluating(network), torch.inference_mode():
            restored = each_alone(network.decode, codes).reshape(len(codes), *self.shape)
            return scaling.inverse(restored).numpy()


# The spaces that lead from a subspace back to samples.
Drawable = PixelSpace | LatentSpace


def space_of(model: Any, shape: tuple[int, ...]) -> SampleSpace:
    """The space of a fitted model's subspaces; that of the samples where it has none."""
    if not hasattr(model, "subspaces_"):
        return SampleSpace(shape)
    if hasattr(model, "autoencoder_"):
        return LatentSpace(model, shape)
    return EncodedSpace(model, shape) if hasattr(model, "features_") else PixelSpace(model, shape)
