"""Dense encoder without a decoder, for vectors and their clusters."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class DenseEncoder(nn.Module):
    """Two hidden layers with BatchNorm, then one linear layer to the latent.

    The input is normalised too, so vectors of any scale are taken.

    Parameters
    ----------
    n_features : int
        Length of the vectors.
    latent_dim : int
        Length of the latent.
    hidden : int, default=256
        Width of the hidden layers.
    """

    def __init__(self, n_features: int, latent_dim: int, hidden: int = 256) -> None:
        super().__init__()
        self.n_features, self.latent_dim, self.hidden = n_features, latent_dim, hidden
        self.layers = nn.Sequential(
            nn.BatchNorm1d(n_features, affine=False),
            nn.Linear(n_features, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, latent_dim),
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """Latents (n, latent_dim) of vectors (n, n_features)."""
        return self.layers(vectors)

    def config(self) -> dict[str, Any]:
        """The arguments that build this network again."""
        return {
            "n_features": self.n_features,
            "latent_dim": self.latent_dim,
            "hidden": self.hidden,
        }
