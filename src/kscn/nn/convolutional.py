"""Convolutional networks: an autoencoder, and an encoder alone for training by labels.

Both keep their channels innermost: oneDNN's kernels for that layout are about three times faster
on CPUs.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.nn import stride2
from kscn.nn.stride2 import in_fast_order

# Stride-2 layers of the encoder are added until the maps are at most this wide, and so many in any
# case. They have so many channels, and deeper ones as many as the last that is named.
SMALLEST, FEWEST = 4, 2
CHANNELS = (24, 48, 64)


class ConvAutoencoder(nn.Module):
    """Autoencoder of stride-2 convolutions for images of any size and number of channels.

    Each layer halves height and width (rounded up, "same" padding), so 28 x 28 goes to 14, 7, 4 and
    the default channels give a latent of 4 * 4 * 5 = 80 numbers. The decoder is symmetric.

    Parameters
    ----------
    shape : (channels, height, width)
        Shape of one image.
    channels : sequence of int, default=(20, 10, 5)
        Channels after each layer of the encoder.
    kernels : sequence of odd int, default=(5, 3, 3)
        Side of the kernel of each layer of the encoder.
    batch_norm : bool, default=False
        Normalise between layers. The latent is then taken before any ReLU.
    """

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int] = (20, 10, 5),
        kernels: Sequence[int] = (5, 3, 3),
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.shape = _image_shape(shape)
        _check_layers(self.shape, channels, kernels)
        self.channels, self.kernels, self.batch_norm = tuple(channels), tuple(kernels), batch_norm
        widths = [self.shape[0], *channels]
        sides = [[-(-side // 2**i) for side in self.shape[1:]] for i in range(len(widths))]
        self.code_shape = (widths[-1], *sides[-1])
        self.latent_dim = math.prod(self.code_shape)

        def activation(width: int) -> list[nn.Module]:
            return [nn.BatchNorm2d(width), nn.ReLU()] if batch_norm else [nn.ReLU()]

        down: list[nn.Module] = []
        for i, kernel in enumerate(kernels):
            down.append(nn.Conv2d(widths[i], widths[i + 1], kernel, 2, kernel // 2))
            down += activation(widths[i + 1])
        up: list[nn.Module] = []
        for i, kernel in reversed(list(enumerate(kernels))):
            # What the stride rounded away comes back as padding of the output.
            high, wide = (side - 2 * half + 1 for side, half in zip(*sides[i : i + 2], strict=True))
            layer = nn.ConvTranspose2d(
                widths[i + 1], widths[i], kernel, 2, kernel // 2, output_padding=(high, wide)
            )
            up += [layer, *activation(widths[i])]
        self.encoder = nn.Sequential(*(down[:-2] if batch_norm else down))
        self.decoder = nn.Sequential(*(up[:-2] if batch_norm else up[:-1]))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def encode(self, images: Tensor) -> Tensor:
        """Latents (n, d) of images (n, c, h, w)."""
        first: Any = self.encoder[0]
        # Without a gradient the first layer is fast as it is.
        if torch.is_grad_enabled() and stride2.suits(first, self.shape[1:], images.device):
            return self.encoder[1:](stride2.conv(first, images)).flatten(1)
        return self.encoder(in_fast_order(images)).flatten(1)

    def decode(self, latent: Tensor) -> Tensor:
        """Images (n, c, h, w) of latents (n, d)."""
        code = in_fast_order(latent.reshape(-1, *self.code_shape))
        last: Any = self.decoder[-1]
        if stride2.suits(last, self.shape[1:], code.device):
            return stride2.conv_transpose(last, self.decoder[:-1](code))
        return self.decoder(code)

    def config(self) -> dict[str, Any]:
        """The arguments that build this network again."""
        return {
            "shape": list(self.shape),
            "channels": list(self.channels),
            "kernels": list(self.kernels),
            "batch_norm": self.batch_norm,
        }


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
    """

    def __init__(self, shape: Sequence[int], latent_dim: int) -> None:
        super().__init__()
        self.shape, self.latent_dim = _image_shape(shape), latent_dim
        inputs, *sides = self.shape
        layers: list[nn.Module] = []
        while len(layers) < 3 * FEWEST or min(sides) > SMALLEST:
            depth = len(layers) // 3
            outputs = CHANNELS[min(depth, len(CHANNELS) - 1)]
            kernel = 5 if depth == 0 and min(sides) >= 16 else 3
            layers += [
                nn.Conv2d(inputs, outputs, kernel, 2, kernel // 2, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
            inputs, sides = outputs, [-(-side // 2) for side in sides]
        self.maps = nn.Sequential(*layers)
        self.linear = nn.Linear(inputs * sides[0] * sides[1], self.latent_dim)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def encode(self, images: Tensor) -> Tensor:
        """Latents (n, latent_dim) of images (n, c, h, w)."""
        maps = self.maps(in_fast_order(images))
        return self.linear(maps.flatten(1))

    def config(self) -> dict[str, Any]:
        """The arguments that build this network again."""
        return {"shape": list(self.shape), "latent_dim": self.latent_dim}


def _image_shape(shape: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(int(length) for length in shape)
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"images must have shape (channels, height, width), got {shape}.")
    return shape


def _check_layers(shape: tuple[int, ...], channels: Sequence[int], kernels: Sequence[int]) -> None:
    odd = all(kernel > 0 and kernel % 2 for kernel in kernels)
    if len(channels) != len(kernels) or not channels or min(channels) < 1 or not odd:
        raise InputError(
            f"channels={tuple(channels)} must be positive, kernels={tuple(kernels)} odd, and both "
            "must name the same number of layers, at least one."
        )
    least = 2 ** len(channels)
    if min(shape[1:]) < least:
        raise InputError(
            f"images of {shape[1]} x {shape[2]} are too small for {len(channels)} layers of "
            f"stride 2, which need at least {least} x {least}; use fewer layers, larger images, "
            "or flatten them and take the dense autoencoder."
        )
