"""Random changes of a batch that keep a sample's cluster: what the encoder learns to ignore."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

KNOTS = 4  # a bent image is moved at KNOTS x KNOTS points, and smoothly between them


@dataclass(frozen=True)
class RandomAffine:
    """Turn, shear, scale, shift and bend every image of a batch a little, each by its own draw.

    Parameters
    ----------
    angle : float
        Largest turn, in degrees.
    shear : float
        Largest shear (the slope that an upright line gets).
    scale : float
        Largest change of width and of height, as a share.
    shift : float
        Largest shift, as a share of the image's side.
    flip : bool
        Mirror left and right every second image. Off where a mirror image means something else.
    bend : float
        Standard deviation of a smooth displacement that differs over the image, as a share of its
        side.
    """

    angle: float = 15.0
    shear: float = 0.25
    scale: float = 0.15
    shift: float = 0.075
    flip: bool = False
    bend: float = 0.0

    def __call__(self, samples: Tensor, generator: torch.Generator) -> Tensor:
        """Changed copies of images (n, c, h, w)."""
        n = len(samples)
        # Drawn on the CPU, where the generator lives, so that a seed means the same on any device.
        draws = (torch.rand(6, n, generator=generator) * 2 - 1).to(samples)
        turn = draws[0] * (self.angle * torch.pi / 180)
        cos, sin, slope = turn.cos(), turn.sin(), draws[1] * self.shear
        wide, high = 1 + draws[2] * self.scale, 1 + draws[3] * self.scale
        if self.flip:
            mirror = torch.randint(2, (n,), generator=generator) * 2 - 1
            wide = wide * mirror.to(samples.device)
        # Turn * shear * scale; grid_sample's coordinates span 2, hence the factor at the shift.
        top = torch.stack([cos * wide, (cos * slope - sin) * high, 2 * self.shift * draws[4]], 1)
        low = torch.stack([sin * wide, (sin * slope + cos) * high, 2 * self.shift * draws[5]], 1)
        grid = torch.nn.functional.affine_grid(
            torch.stack([top, low], 1), list(samples.shape), align_corners=False
        )
        if self.bend:
            knots = torch.randn(n, KNOTS, KNOTS, 2, generator=generator).to(samples)
            down, across = (_between_knots(size).to(samples) for size in samples.shape[-2:])
            rows = torch.einsum("hi,nijc->nhjc", 2 * self.bend * down, knots)
            grid += torch.einsum("wj,nhjc->nhwc", across, rows)
        return torch.nn.functional.grid_sample(samples, grid, align_corners=False)


@dataclass(frozen=True)
class RandomNoise:
    """Gaussian noise for vectors, as a share of the root mean square of the batch."""

    level: float = 0.1

    def __call__(self, samples: Tensor, generator: torch.Generator) -> Tensor:
        """Noisy copies of samples of any shape."""
        noise = torch.randn(samples.shape, generator=generator).to(samples)
        return samples + self.level * samples.square().mean().sqrt() * noise


@lru_cache
def _between_knots(size: int) -> Tensor:
    """Cubic weights of the knots for each of `size` pixels, shape (size, knots)."""
    knots = torch.eye(KNOTS)[:, None]
    between = torch.nn.functional.interpolate(
        knots[:, :, None], size=(1, size), mode="bicubic", align_corners=True
    )
    return between[:, 0, 0].T.contiguous()
