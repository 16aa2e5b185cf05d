"""Dense autoencoder, the "stacked" one of DEC and DCN, for vectors or flattened images."""

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from kscn.errors import InputError


class DenseAutoencoder(nn.Module):
    """Fully connected autoencoder with ReLU between layers and a linear latent.

    Parameters
    ----------
    n_features : int
        Length of one sample.
    hidden : sequence of int, default=(500, 500, 2000)
        Widths between input and latent; the decoder has them in reverse.
    latent_dim : int, default=10
        Width of the latent.
    """

    def __init__(
        self, n_features: int, hidden: Sequence[int] = (500, 500, 2000), latent_dim: int = 10
    ) -> None:
        super().__init__()
        widths = [int(n_features), *map(int, hidden), int(latent_dim)]
        if min(widths) < 1:
            raise InputError(f"layer widths {widths} must be positive.")
        self.n_features, self.hidden, self.latent_dim = widths[0], tuple(widths[1:-1]), widths[-1]
        self.encoder = _layers(widths)
        self.decoder = _layers(widths[::-1])

    def encode(self, samples: Tensor) -> Tensor:
        """Latents (n, latent_dim) of samples (n, n_features)."""
        return self.encoder(samples)

    def decode(self, latent: Tensor) -> Tensor:
        """Samples (n, n_features) of latents (n, latent_dim)."""
        return self.decoder(latent)

    def config(self) -> dict[str, Any]:
        """The arguments that build this network again."""
        return {
            "n_features": self.n_features,
            "hidden": list(self.hidden),
            "latent_dim": self.latent_dim,
        }


def _layers(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
