"""Scattering coefficients as features, the way the field uses them for clustering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.features.base import FeatureMap, tensor_of, wrong_state
from kscn.features.scattering import Scattering2D

if TYPE_CHECKING:
    from typing_extensions import Self

# Maps weaker than this share of an image's strongest are mostly rounding; they stay weak.
FAINT = 1e-5
# Beyond this, squares leave the range of float32.
LARGEST = 1e15


class ScatteringFeatures(FeatureMap):
    """Two-order scattering maps of images, each map divided by its own maximum.

    Images are surrounded by zeros up to the next size that 2**J divides, 28 x 28 to 32 x 32, and
    scattered with reflection beyond that. The features of an image depend on that image alone.

    Parameters
    ----------
    J : int or "auto"
        Number of scales. By default such that maps have about 4 x 4 pixels: 3 for images of
        28 x 28 or 32 x 32; but 2 for smaller ones, so that there is a second order.
    L : int
        Number of angles.
    normalise : "map-max" or None
        Divide each map of each image by the largest absolute value in it, or leave it.

    Attributes
    ----------
    J_ : int
        The number of scales in use.
    scattering_ : Scattering2D
        The transform in use.
    """

    J_: int
    scattering_: Scattering2D

    def __init__(
        self, J: int | str = "auto", L: int = 8, normalise: str | None = "map-max"
    ) -> None:
        self.J = J
        self.L = L
        self.normalise = normalise

    def fit(self, X: Any, y: Any = None) -> Self:
        """Prepare the filters for images X, (n, h, w) or (n, channels, h, w)."""
        return self._prepare(self._open(X, reset=True).shape)

    def _prepare(self, shape: tuple[int, ...]) -> Self:
        if len(shape) not in (2, 3):
            raise InputError(
                f"X has samples of shape {shape}; scattering needs images, so give an array of "
                "shape (n, height, width) or (n, channels, height, width)."
            )
        if self.normalise not in ("map-max", None):
            raise InputError(f"normalise={self.normalise!r} is not known; use 'map-max' or None.")
        if isinstance(self.J, str) and self.J != "auto":
            raise InputError(f"J={self.J!r} is not known; use 'auto' or a number of scales.")
        self.J_ = _usual_scales(shape) if isinstance(self.J, str) else self.J
        # Scattering2D refuses scales that are no positive integers or that do not fit.
        unit = 2**self.J_ if isinstance(self.J_, int) and 0 < self.J_ < 64 else 1
        self._missing = [-size % unit if size >= unit else 0 for size in shape[-2:]]
        padded = [size + more for size, more in zip(shape[-2:], self._missing, strict=True)]
        self.scattering_ = Scattering2D((padded[0], padded[1]), self.J_, self.L).to(self.device)
        channels = shape[0] if len(shape) == 3 else 1
        pixels = int(np.prod(self.scattering_.map_shape))
        self._n_features_out = channels * self.scattering_.n_maps * pixels
        return self

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        if hasattr(self, "scattering_"):
            self.scattering_.to(device)
        return super().to(device)

    def _given(self, rows: NDArray) -> Tensor:
        if rows.dtype.kind == "f" and (largest := float(np.abs(rows).max())) > LARGEST:
            raise InputError(
                f"X holds values around {largest:.0e}, whose squares cannot be represented; "
                "divide all images by a constant first."
            )
        return tensor_of(rows, np.dtype(np.float32)).to(self.device)

    def _apply(self, samples: Tensor) -> Tensor:
        y, x = self._missing
        images = nn.functional.pad(samples, (x // 2, x - x // 2, y // 2, y - y // 2))
        maps = self.scattering_(images).flatten(-2)
        if self.normalise:
            maps = _by_maximum(maps)
        return maps.reshape(len(samples), -1)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Settings and the shape of the images; there are no arrays."""
        return {"params": self.get_params(), "shape": list(self.sample_shape_)}, {}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        """The fitted map that `state` described."""
        try:
            features = cls(**config["params"])
            features.sample_shape_ = tuple(config["shape"])
            features.n_features_in_ = int(np.prod(features.sample_shape_))
            return features._prepare(features.sample_shape_)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise wrong_state(cls, error) from error


def _usual_scales(shape: tuple[int, ...]) -> int:
    """Scales after which the smaller side of an image has about 4 pixels left."""
    side = min(shape[-2:])
    return max(2 if side >= 8 else 1, round(np.log2(side / 4)))


def _by_maximum(maps: Tensor) -> Tensor:
    """Maps (n, ..., pixels), each divided by its largest absolute value; zeros stay zeros."""
    strongest = maps.abs().amax(dim=-1, keepdim=True)
    faint = FAINT * strongest.flatten(1).amax(dim=1)
    faint = faint.clamp_min(torch.finfo(maps.dtype).tiny).view(-1, *[1] * (maps.ndim - 1))
    return maps / torch.maximum(strongest, faint)
