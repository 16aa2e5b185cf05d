"""Steps of images: means over blocks of pixels, and scattering maps."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.features.scattering import Scattering2D, maps_of

# Maps weaker than this share of an image's strongest are mostly rounding; they stay weak.
FAINT = 1e-5
# Features of an image at the most: components of more would take too long.
MOST_FEATURES = 16384
# The longer side that images of any size are scattered at: what an image shows as a whole survives,
# and it takes a sixteenth of the time at twice of it (177 images a second of one core at 64, 11 at
# 112).
LARGEST_SIDE = 64


class BlockMeans(nn.Module):
    """Images made smaller by the mean over square blocks of pixels.

    Parameters
    ----------
    shape : sequence of int
        Of one image: (height, width), or (channels, height, width).
    block : int
        Side of a block; those at the edge may be smaller.
    """

    row_by_row = True

    def __init__(self, shape: Sequence[int], block: int) -> None:
        super().__init__()
        self.shape, self.block = tuple(shape), block

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of a smaller image."""
        *channels, height, width = self.shape
        return (*channels, -(-height // self.block), -(-width // self.block))

    def forward(self, samples: Tensor) -> Tensor:
        """Means (n, d) of images with any shape of a batch."""
        samples = samples if samples.is_floating_point() else samples.float()
        images = samples.reshape(len(samples), math.prod(self.shape[:-2]), *self.shape[-2:])
        means = nn.functional.avg_pool2d(
            images, self.block, ceil_mode=True, count_include_pad=False
        )
        return means.flatten(1)

    def config(self) -> dict[str, Any]:
        """The arguments that build this step again."""
        return {"shape": list(self.shape), "block": self.block}


class ScatteringMaps(nn.Module):
    """Two-order scattering maps of images, each map divided by its own maximum.

    Images are surrounded by zeros up to the next size that 2**J divides, 28 x 28 to 32 x 32, and
    scattered with reflection beyond that. The features of an image depend on that image alone, and
    not on its scale.

    Parameters
    ----------
    shape : sequence of int
        Of one image: (height, width), or (channels, height, width).
    J : int
        Number of scales.
    L : int
        Number of angles.
    """

    row_by_row = True  # in pieces of its own, see Scattering2D

    def __init__(self, shape: Sequence[int], J: int, L: int = 8) -> None:
        super().__init__()
        self.shape, self.J, self.L = tuple(shape), J, L
        unit = 2 ** min(J, 62)
        # What is smaller than that is refused by `maps_of`.
        high, wide = (size + (-size % unit if size >= unit else 0) for size in self.shape[-2:])
        self.padded = (high, wide)
        n_maps, map_shape = maps_of(self.padded, J, L)
        self.width = math.prod((*self.shape[:-2], n_maps, *map_shape))
        # Made when it is first needed: its filters take time and memory.
        self.scattering: Scattering2D | None = None

    @classmethod
    def of_shape(cls, shape: Sequence[int]) -> Self:
        """With as many scales as suit images of a shape: maps then have about 4 x 4 pixels.

        That are 3 for images of 28 x 28 or 32 x 32; but 2 for smaller ones, so that there is a
        second order, and more where there would be more than 16,384 features: 5 for colours of
        64 x 64.
        """
        side = min(shape[-2:])
        J = max(2 if side >= 8 else 1, round(math.log2(side / 4)))
        made = cls(shape, J)
        while made.width > MOST_FEATURES and side >= 2 ** (J + 1):
            J += 1
            made = cls(shape, J)
        return made

    def forward(self, samples: Tensor) -> Tensor:
        """Maps (n, d) of images with any shape of a batch."""
        if self.scattering is None:
            self.scattering = Scattering2D(self.padded, self.J, self.L)
        self.scattering.to(samples.device)
        y, x = np.subtract(self.padded, self.shape[-2:]).tolist()
        images = _at_unit_scale(samples.reshape(-1, *self.shape))
        images = nn.functional.pad(images, (x // 2, x - x // 2, y // 2, y - y // 2))
        return _by_maximum(self.scattering(images).flatten(-2)).flatten(1)

    def config(self) -> dict[str, Any]:
        """The arguments that build this step again."""
        return {"shape": list(self.shape), "J": self.J, "L": self.L}


def scattering_steps(shape: tuple[int, ...]) -> nn.ModuleList:
    """The steps that scatter images ([c,] h, w), after large ones are made smaller."""
    if len(shape) not in (2, 3):
        raise InputError(
            f"X has samples of shape {shape}; scattering needs images, so give an array of "
            "shape (n, height, width) or (n, channels, height, width)."
        )
    smaller = block_means(shape, LARGEST_SIDE)
    maps = ScatteringMaps.of_shape(smaller[0].out_shape if smaller else shape)
    return nn.ModuleList([*smaller, maps])


def block_means(shape: tuple[int, ...], largest_side: int) -> list[BlockMeans]:
    """The step that makes images no longer than `largest_side`, where they are."""
    block = math.ceil(max(shape[-2:]) / largest_side)
    return [BlockMeans(shape, block)] if block > 1 else []


def _at_unit_scale(samples: Tensor) -> Tensor:
    """Images in float32, each divided by a power of two, so that squares stay in range.

    The largest value of an image is then between 1/2 and 1, and no digit is lost.
    """
    samples = samples.double()
    exponents = torch.frexp(samples.flatten(1).abs().amax(dim=1)).exponent
    factors = torch.exp2(-exponents.double()).view(-1, *[1] * (samples.ndim - 1))
    return (samples * factors).float()


def _by_maximum(maps: Tensor) -> Tensor:
    """Maps (n, ..., pixels), each divided by its largest absolute value; zeros stay zeros."""
    strongest = maps.abs().amax(dim=-1, keepdim=True)
    faint = FAINT * strongest.flatten(1).amax(dim=1)
    faint = faint.clamp_min(torch.finfo(maps.dtype).tiny).view(-1, *[1] * (maps.ndim - 1))
    return maps / torch.maximum(strongest, faint)
