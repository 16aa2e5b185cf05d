"""What happens to an image before a network sees it: size, crop, mean and deviation."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.constraints import TEXT, Integer, check_parameters, parameter
from kscn.errors import InputError, reason
from kscn.extras import require

LARGEST = 4096  # pixels a side


@dataclass(frozen=True)
class Preprocessing:
    """How an RGB image becomes the input of a network.

    Attributes
    ----------
    size : int or (int, int)
        Pixels a side, or height and width, of what the network takes.
    fit : {"crop", "stretch"}
        What becomes of an image of another shape: its middle is cut out, or its sides are scaled
        apart.
    resize : int, optional
        With "crop": the shorter side is scaled to this before `size` is cut out; by default such
        that as much as possible is seen.
    interpolation : {"nearest", "bilinear", "bicubic", "lanczos"}
        How pixels are made from those of another size.
    mean, std : tuple of float
        Of red, green and blue, subtracted from and divided into values between 0 and 1; by default
        those of ImageNet. A network that takes values up to 255 has mean 0 and std 1/255.
    output : str, optional
        Which output of an ONNX graph to take; the first by default.
    """

    size: Any = 224
    fit: str = parameter("crop", "stretch")
    resize: int | None = parameter(None, Integer(1))
    interpolation: str = parameter("bicubic", "bilinear", "nearest", "lanczos")
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    output: str | None = parameter(None, TEXT)

    def __post_init__(self) -> None:
        check_parameters(self)
        size = (self.size, self.size) if isinstance(self.size, Integral) else self.size
        object.__setattr__(self, "size", _numbers("size", size, 2, 1, LARGEST))
        for name, least in {"mean": -1e30, "std": 1e-30}.items():
            values = _numbers(name, getattr(self, name), 3, least, 1e30)
            object.__setattr__(self, name, values)
        if not max(self.size) <= (self.resize or LARGEST) <= LARGEST:
            raise InputError(
                f"resize={self.resize!r} must be a number of pixels that is not below the size "
                f"{max(self.size)}, which is cut out of it, nor above {LARGEST}."
            )

    @classmethod
    def of_table(cls, table: Mapping[str, Any], where: str) -> Preprocessing:
        """From settings by name; `where` says in messages where they stand."""
        try:
            return cls(**table)
        except TypeError as error:
            known = ", ".join(field.name for field in fields(cls))
            raise InputError(f"{where}: {reason(error)}; the settings are {known}.") from None
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def table(self) -> dict[str, Any]:
        """Plain values from which `of_table` makes the same again."""
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {name: value for name, value in listed.items() if value is not None}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image as the network takes it."""
        return (3, *self.size)

    @property
    def least(self) -> int:
        """Pixels a side of an image that are enough to make it smaller from."""
        return 2 * max(*self.size, self.resize or 0)

    def __call__(self, image: Any) -> NDArray[np.float32]:
        """An RGB image of Pillow as the network takes it, of the shape `shape`."""
        pillow = require("PIL.Image", "images", "reading images")
        height, width = self.size
        wide, high = image.size  # what is seen of the image
        if self.fit == "crop":
            least = max(width / wide, height / high)
            scale = least if self.resize is None else self.resize / min(wide, high)
            wide, high = min(width / scale, wide), min(height / scale, high)
        left, top = (image.width - wide) / 2, (image.height - high) / 2
        seen = image.resize(
            (width, height),
            pillow.Resampling[self.interpolation.upper()],
            box=(left, top, left + wide, top + high),
        )
        pixels, mean, std = (np.asarray(v, np.float32) for v in (seen, self.mean, self.std))
        return ((pixels / np.float32(255) - mean) / std).transpose(2, 0, 1)


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read ({reason(error)}); write settings such as size = 224 into it."
        ) from None


def _numbers(name: str, values: Any, count: int, low: float, high: float) -> tuple[Any, ...]:
    """The values, if they are so many numbers within limits."""
    listed = values if isinstance(values, (tuple, list)) else ()
    kind: Any = Integral if isinstance(low, int) else Real
    good = [value for value in listed if isinstance(value, kind) and low <= value <= high]
    if not len(good) == len(listed) == count:
        word = "whole numbers" if kind is Integral else "numbers"
        raise InputError(f"{name}={values!r} must be {count} {word} from {low:g} to {high:g}.")
    return tuple(map(type(low), good))
