"""Convolutional encoder without a decoder, for training by labels that the data gives itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.nn.stride2 import in_fast_order

# Stride-2 layers are added until the maps are at most this wide; the last channels are repeated.
SMALLEST = 4
FEWEST = 2


class ConvEncoder(nn.Module):
    """Stride-2 convolutions with BatchNorm, then one linear layer to the latent.

    The number of layers follows from the size of the images: each halves height and width, until
    the shorter side is at most 4 pixels, but there are two at least. 28 x 28 goes to 14, 7, 4.

    Parameters
    ----------
    shape : (channels, height, width)
        Shape of one image.
    latent_dim : int
        Length of the latent.
    channels : sequence of int, default=(24, 48, 64)
        Channels after each layer; deeper layers have as many as the last one named.
    """

    def __init__(
        self, shape: Sequence[int], latent_dim: int, channels: Sequence[int] = (24, 48, 64)
    ) -> None:
        super().__init__()
        self.shape = tuple(int(length) for length in shape)
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise InputError(f"images must have shape (channels, height, width), got {self.shape}.")
        if not channels or min(channels) < 1 or latent_dim < 1:
            raise InputError(
                f"channels={tuple(channels)} and latent_dim={latent_dim} must be positive."
            )
        self.latent_dim, self.channels = int(latent_dim), tuple(int(width) for width in channels)
        inputs, *sides = self.shape
        layers: list[nn.Module] = []
        while len(layers) < 3 * FEWEST or min(sides) > SMALLEST:
            depth = len(layers) // 3
            outputs = self.channels[min(depth, len(self.channels) - 1)]
            kernel = 5 if depth == 0 and min(sides) >= 16 else 3
            layers += [
                nn.Conv2d(inputs, outputs, kernel, 2, kernel // 2, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
            inputs, sides = outputs, [-(-side // 2) for side in sides]
        self.maps = nn.Sequential(*layers)
        self.linear = nn.Linear(inputs * sides[0] * sides[1], self.latent_dim)
        # oneDNN's kernels for this layout are about three times faster on CPUs.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def encode(self, images: Tensor) -> Tensor:
        """Latents (n, latent_dim) of images (n, c, h, w)."""
        maps = self.maps(in_fast_order(images))
        return self.linear(maps.flatten(1))

    def forward(self, images: Tensor) -> Tensor:
        """Latents of images, as `encode`."""
        return self.encode(images)

    def config(self) -> dict[str, Any]:
        """The arguments that build this network again."""
        return {
            "shape": list(self.shape),
            "latent_dim": self.latent_dim,
            "channels": list(self.channels),
        }
