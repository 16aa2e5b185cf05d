"""`SubspaceModel`: what every fit ends with, from samples to the subspaces that they are near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.data import Source
from kscn.features import FeatureChain
from kscn.nn import DeepNetwork, IdentityLatent, InputScaling
from kscn.runtime.blocks import Blocks, check_finite
from kscn.runtime.device import placed
from kscn.runtime.labels import Assignment, assign
from kscn.runtime.latents import encode
from kscn.runtime.minibatches import Minibatches
from kscn.subspaces import Subspaces

if TYPE_CHECKING:
    from typing import Self


class SubspaceModel(nn.Module):
    """Scale, encode, latent, subspaces: one module, whichever estimator fitted it.

    Samples come to the latent space by a `network` (after `scaling`, and then through the map
    `latent`), else by fixed `features`, else as they are, less a `shift`. A fit puts the parts in
    one after the other; the subspaces are the last.

    Parameters
    ----------
    shape : tuple of int
        Of one sample, as the first part takes it.

    Attributes
    ----------
    scaling, network, latent : nn.Module or None
        From stored values to those of the network; the network; from its codes to latents.
    features : FeatureChain or None
        Fixed features.
    bases : Tensor, shape (k, d, p)
        Of the subspaces.
    offsets : Tensor, shape (k, d), or None
        A point on each affine subspace, in the coordinates of the samples.
    shift : Tensor, shape (d,), or None
        What is subtracted from samples before distances are taken; affine subspaces only.
    temperature : float
        By what residuals are divided to become logarithms of probabilities.
    """

    bases: Tensor
    offsets: Tensor | None
    shift: Tensor | None

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.scaling: InputScaling | None = None
        self.network: nn.Module | None = None
        self.latent: nn.Module = IdentityLatent()
        self.features: FeatureChain | None = None
        self.temperature = 0.0
        for name in ("bases", "offsets", "shift"):
            self.register_buffer(name, None)

    @property
    def device(self) -> torch.device:
        """Where the subspaces are."""
        return self.bases.device

    @property
    def subspaces(self) -> Subspaces:
        """The subspaces, in the coordinates of the latents."""
        if self.offsets is None or self.shift is None:
            return Subspaces(self.bases)
        return Subspaces(self.bases, (self.offsets - self.shift).to(self.bases.dtype))

    def set_subspaces(self, found: Subspaces, shift: Tensor | None = None) -> None:
        """Take over what a fit found, on the CPU; the other parts stay where the fit has them."""
        self.bases = found.bases.cpu()
        self.shift = None if shift is None else shift.cpu()
        if found.offsets is not None and self.shift is not None:
            self.offsets = found.offsets.cpu() + self.shift

    def at(self, device: torch.device) -> Self:
        """The same model, moved to a device."""
        placed(self, device)
        if self.features is not None:
            self.features.to(device)
        return self

    def batches(self, source: Source, device: torch.device, batch_size: int = 1) -> Minibatches:
        """Samples as the network takes them."""
        assert self.scaling is not None
        return Minibatches(source, self.scaling, self.shape, batch_size, device)

    def latents(self, source: Source, batch_size: int | None = None) -> Blocks:
        """Samples in the space of the subspaces, in blocks."""
        if self.network is not None:
            network = DeepNetwork(self.network, self.latent, decodes=False)
            source = encode(self.batches(source, self.device), network)
        elif self.features is not None:
            source = self.features.source(source)
        return Blocks(source, self.bases.dtype, self.device, self.shift, batch_size)

    def assign(self, source: Source, batch_size: int | None = None) -> Assignment:
        """The nearest subspace of every sample, and the squared distance to it."""
        return assign(self.latents(source, batch_size), self.subspaces)

    def residuals(self, source: Source, batch_size: int | None = None) -> NDArray:
        """Squared distance of every sample to every subspace, in the latent space, (n, k)."""
        blocks, subspaces = self.latents(source, batch_size), self.subspaces
        dtype = str(blocks.dtype).removeprefix("torch.")
        out = np.empty((len(blocks), subspaces.n_clusters), dtype=dtype)
        for where, z in blocks:
            norms = z.square().sum(dim=1)
            check_finite(norms, z, blocks.source.name)
            out[where : where + len(z)] = subspaces.residuals(z, norms).cpu().numpy()
        return out

    def probabilities(self, residuals: NDArray) -> NDArray:
        """Posteriors (n, k) of clusters, proportional to exp(-residual / temperature)."""
        residuals = residuals.astype(np.float64)
        # Without noise any positive number does, if only it is small beside the residuals.
        least = np.finfo(np.float32).tiny * min(1.0, residuals.max() or 1.0)
        scale = max(self.temperature, least)
        odds = np.exp(-(residuals - residuals.min(axis=1, keepdims=True)) / scale)
        return odds / odds.sum(axis=1, keepdims=True)
