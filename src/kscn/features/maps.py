"""Scattering coefficients as features, the way the field uses them for clustering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.errors import InputError
from kscn.features.base import FeatureMap, tensor_of
from kscn.features.pca import MOST_FEATURES
from kscn.features.scattering import Scattering2D, maps_of

if TYPE_CHECKING:
    from typing_extensions import Self

# Maps weaker than this share of an image's strongest are mostly rounding; they stay weak.
FAINT = 1e-5


class ScatteringFeatures(FeatureMap):
    """Two-order scattering maps of images, each map divided by its own maximum.

    Images are surrounded by zeros up to the next size that 2**J divides, 28 x 28 to 32 x 32, and
    scattered with reflection beyond that. The features of an image depend on that image alone.

    Parameters
    ----------
    J : int or "auto"
        Number of scales. By default such that maps have about 4 x 4 pixels: 3 for images of
        28 x 28 or 32 x 32; but 2 for smaller ones, so that there is a second order, and more
        where there would be more features than `PCAFeatures` takes: 5 for colours of 64 x 64.
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
        self._fit_size(shape)
        # Fewer and larger pixels of the maps, where components of all would take too much memory.
        while (
            self.J == "auto"
            and self._n_features_out > MOST_FEATURES
            and min(shape[-2:]) >= 2 ** (self.J_ + 1)
        ):
            self.J_ += 1
            self._fit_size(shape)
        self._params_of_fit = self.get_params()
        self._scattering: Scattering2D | None = None
        return self

    def _fit_size(self, shape: tuple[int, ...]) -> None:
        """What images are filled up to, and how many features come out."""
        # Scattering2D refuses scales that are no positive integers or that do not fit.
        unit = 2**self.J_ if isinstance(self.J_, int) and 0 < self.J_ < 64 else 1
        self._missing = [-size % unit if size >= unit else 0 for size in shape[-2:]]
        padded = [size + more for size, more in zip(shape[-2:], self._missing, strict=True)]
        self._padded = (padded[0], padded[1])
        n_maps, (high, wide) = maps_of(self._padded, self.J_, self.L)
        channels = shape[0] if len(shape) == 3 else 1
        self._n_features_out = channels * n_maps * high * wide

    @property
    def scattering_(self) -> Scattering2D:
        """The transform in use, made when it is first needed: its filters take time and memory."""
        if self._scattering is None:
            made = Scattering2D(self._padded, self.J_, self._params_of_fit["L"])
            self._scattering = made.to(self.device)
        return self._scattering

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        if getattr(self, "_scattering", None) is not None:
            self.scattering_.to(device)
        return super().to(device)

    def _given(self, rows: NDArray) -> Tensor:
        exact = rows.dtype.kind == "f" and rows.dtype.itemsize == 4
        exact |= rows.dtype.kind in "biu" and rows.dtype.itemsize <= 2
        return tensor_of(rows, np.dtype("f4" if exact else "f8")).to(self.device)

    def _apply(self, samples: Tensor) -> Tensor:
        y, x = self._missing
        images, exponents = _at_unit_scale(samples)
        images = nn.functional.pad(images, (x // 2, x - x // 2, y // 2, y - y // 2))
        maps = self.scattering_(images).flatten(-2)
        if self._params_of_fit["normalise"]:
            maps = _by_maximum(maps)  # whatever the scale of an image
        else:
            maps = _scaled_back(maps, exponents)
        return maps.reshape(len(samples), -1)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Settings and the shape of the images; there are no arrays."""
        return {"params": self._params_of_fit, "shape": list(self.sample_shape_)}, {}

    @classmethod
    def _of_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        features = cls(**config["params"])
        features._take_shape(config)
        return features._prepare(features.sample_shape_)


def _usual_scales(shape: tuple[int, ...]) -> int:
    """Scales after which the smaller side of an image has about 4 pixels left."""
    side = min(shape[-2:])
    return max(2 if side >= 8 else 1, round(np.log2(side / 4)))


def _at_unit_scale(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Images in float32, each divided by a power of two, so that squares stay in range; and these.

    The largest value of an image is then between 1/2 and 1, and no digit is lost.
    """
    exponents = torch.frexp(samples.flatten(1).abs().amax(dim=1)).exponent
    factors = torch.exp2(-exponents.double()).view(-1, *[1] * (samples.ndim - 1))
    return (samples.double() * factors).float(), exponents


def _scaled_back(maps: Tensor, exponents: Tensor) -> Tensor:
    """Maps of images at unit scale as those of the images that were given."""
    factors = torch.exp2(exponents.double()).view(-1, *[1] * (maps.ndim - 1))
    maps = (maps.double() * factors).float()
    if not maps.isfinite().all():
        raise InputError(
            f"X holds values around 1e{int(exponents.max()) * 0.30103:.0f}, beyond the range of "
            "float32; divide all images by a constant first."
        )
    return maps


def _by_maximum(maps: Tensor) -> Tensor:
    """Maps (n, ..., pixels), each divided by its largest absolute value; zeros stay zeros."""
    strongest = maps.abs().amax(dim=-1, keepdim=True)
    faint = FAINT * strongest.flatten(1).amax(dim=1)
    faint = faint.clamp_min(torch.finfo(maps.dtype).tiny).view(-1, *[1] * (maps.ndim - 1))
    return maps / torch.maximum(strongest, faint)
