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

    def folded(self) -> nn.Sequential:
        """The same map, once trained, as linear layers only: normalisation goes into them."""
        first, *others = (layer for layer in self.layers if isinstance(layer, nn.BatchNorm1d))
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        parts: list[nn.Module] = []
        before: nn.BatchNorm1d | None = first
        for layer, after in zip(linear, [*others, None], strict=True):
            weight = layer.weight.detach().double()
            bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.double()
            if before is not None:
                scale, shift = _affine(before)
                bias, weight = bias + weight @ shift, weight * scale
            if after is not None:
                scale, shift = _affine(after)
                bias, weight = bias * scale + shift, weight * scale[:, None]
            whole = nn.Linear(weight.shape[1], len(weight))
            whole.weight.data, whole.bias.data = weight.float(), bias.detach().float()
            parts += [whole, nn.ReLU()]
            before = None
        return nn.Sequential(*parts[:-1])

    def config(self) -> dict[str, Any]:
        """The arguments that build this network again."""
        return {
            "n_features": self.n_features,
            "latent_dim": self.latent_dim,
            "hidden": self.hidden,
        }


def _affine(norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """Scale and shift of a trained normalisation, in float64."""
    assert norm.running_var is not None and norm.running_mean is not None
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    shift = -norm.running_mean.double() * scale
    if norm.affine:
        weight = norm.weight.detach().double()
        scale, shift = scale * weight, shift * weight + norm.bias.detach().double()
    return scale, shift
