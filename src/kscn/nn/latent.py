"""From the autoencoder's code to the latent that subspaces are fitted in."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from kscn.subspaces.decompositions import eigh


class IdentityLatent(nn.Identity):
    """The autoencoder's latent as it is: the paper's choice."""


class UnitLatent(nn.Module):
    """The latent at unit norm: its energies in orthogonal subspaces add up to at most one."""

    def forward(self, latent: Tensor) -> Tensor:
        """Unit vectors (n, d) of latents (n, d)."""
        return nn.functional.normalize(latent, dim=1)

    def config(self) -> dict[str, Any]:
        """The arguments that build this step again: none."""
        return {}


class WhitenedLatent(nn.Module):
    """Centred, whitened onto the leading principal directions, and brought to unit norm.

    Raw latents are non-negative with a large common mean, so every subspace would hold nearly the
    same first direction; and a network can lower residuals by shrinking them. Both end here. The
    map starts at the statistics of the pretrained latents and is trained with the encoder.
    """

    def __init__(self, latent_dim: int, n_components: int) -> None:
        super().__init__()
        self.linear = nn.Linear(latent_dim, n_components)

    @classmethod
    def from_moments(cls, mean: Tensor, covariance: Tensor, n_components: int) -> Self:
        """Whitening by the mean (d,) and covariance (d, d) of latents, in float64.

        At most as many directions are kept as carry variance.
        """
        values, vectors = eigh(covariance.double())
        carried = int((values > values[-1].clamp_min(1e-300) * 1e-10).sum())
        kept = max(1, min(n_components, carried))
        weight = (vectors[:, -kept:] / values[-kept:].clamp_min(1e-300).sqrt()).flip(1).T
        made = cls(len(mean), kept)
        with torch.no_grad():
            made.linear.weight.copy_(weight)
            made.linear.bias.copy_(-(weight @ mean.double()))
        return made

    def forward(self, latent: Tensor) -> Tensor:
        """Unit vectors (n, n_components) of latents (n, d)."""
        return nn.functional.normalize(self.linear(latent), dim=1)

    def config(self) -> dict[str, Any]:
        """The arguments that build this step again."""
        return {
            "latent_dim": self.linear.in_features,
            "n_components": self.linear.out_features,
        }


class DeepNetwork(nn.Module):
    """An autoencoder and its latent map in one module, as DistributedDataParallel needs it."""

    def __init__(self, autoencoder: nn.Module, latent: nn.Module, decodes: bool = True) -> None:
        super().__init__()
        self.autoencoder, self.latent, self.decodes = autoencoder, latent, decodes

    def encode(self, x: Tensor) -> Tensor:
        """Latents (n, d) of samples."""
        return self.latent(self.autoencoder.encode(x))  # type: ignore[operator]

    def forward(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """What is restored of samples, unless the network only encodes, and their latents."""
        codes = self.autoencoder.encode(x)  # type: ignore[operator]
        restored = self.autoencoder.decode(codes) if self.decodes else None  # type: ignore[operator]
        return restored, self.latent(codes)
