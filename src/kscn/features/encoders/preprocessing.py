"""What happens to an image before a network sees it: size, crop, channels, mean and deviation."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.constraints import Integer, check_parameters, parameter
from kscn.errors import InputError, reason
from kscn.extras import require

CHANNELS = {"RGB": 3, "L": 1}
# Mean and deviation of ImageNet, which most networks for photographs were trained with.
USUAL: dict[str, dict[str, tuple[float, ...]]] = {
    "RGB": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    "L": {"mean": (0.449,), "std": (0.226,)},
}
LARGEST = 4096  # pixels a side
_TOML_BYTES = 64 * 1024


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a network, and its output a vector.

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
        Per channel, subtracted from and divided into values between 0 and 1; by default those of
        ImageNet. A network that takes values up to 255 has mean 0 and std 1/255.
    channels : {"RGB", "L"}
        "L" is grey.
    pool : {"first", "mean"}
        Of an output that is a sequence (n, t, d), the first token or the mean. Maps (n, d, h, w)
        are averaged over their positions, vectors (n, d) stay as they are.
    output : str, optional
        Which output of an ONNX graph to take; the first by default.
    """

    size: Any = 224
    fit: str = parameter("crop", "stretch")
    resize: int | None = parameter(None, Integer(1))
    interpolation: str = parameter("bicubic", "bilinear", "nearest", "lanczos")
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels: str = parameter("RGB", "L")
    pool: str = parameter("first", "mean")
    output: str | None = parameter(None, str)

    def __post_init__(self) -> None:
        check_parameters(self)
        size: Any = (self.size, self.size) if isinstance(self.size, Integral) else self.size
        if not _are_numbers(size, 2, Integral) or not 1 <= min(size) <= max(size) <= LARGEST:
            raise InputError(
                f"size={self.size!r} is not the size of an image; give pixels a side, or height "
                f"and width, from 1 to {LARGEST}."
            )
        if not max(size) <= (self.resize or LARGEST) <= LARGEST:
            raise InputError(
                f"resize={self.resize!r} must be a number of pixels that is not below the size "
                f"{max(size)}, which is cut out of it, nor above {LARGEST}."
            )
        object.__setattr__(self, "size", (int(size[0]), int(size[1])))
        for name, usual in USUAL[self.channels].items():
            values = usual if getattr(self, name) is None else getattr(self, name)
            if not _are_numbers(values, len(usual), Real) or (name == "std" and min(values) <= 0):
                raise InputError(
                    f"{name}={values!r} must be {len(usual)} numbers, one for each channel of "
                    f"{self.channels}, and a std must be above 0."
                )
            object.__setattr__(self, name, tuple(map(float, values)))

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
        return (CHANNELS[self.channels], *self.size)

    @property
    def least(self) -> int:
        """Pixels a side of an image that are enough to make it smaller from."""
        return 2 * max(*self.size, self.resize or 0)

    def __call__(self, image: Any) -> NDArray[np.float32]:
        """An RGB image of Pillow as the network takes it, of the shape `shape`."""
        pixels = np.asarray(self._sized(image).convert(self.channels)).reshape(*self.size, -1)
        made = np.empty((CHANNELS[self.channels], *self.size), dtype=np.float32)
        for channel, (mean, std) in enumerate(zip(self.mean or (), self.std or (), strict=True)):
            # Channel by channel and in place, which takes a third of the time.
            np.multiply(pixels[..., channel], np.float32(1 / (255 * std)), out=made[channel])
            made[channel] -= np.float32(mean / std)
        return made

    def _sized(self, image: Any) -> Any:
        pillow = require("PIL.Image", "images", "reading images")
        height, width = self.size
        method = pillow.Resampling[self.interpolation.upper()]
        if self.fit == "stretch":
            return image.resize((width, height), method)
        if self.resize is None:
            scale = max(width / image.width, height / image.height)
        else:
            scale = self.resize / min(image.width, image.height)
        # At least what is cut out, whatever rounding says.
        wide = max(width, int(image.width * scale + 1e-6))
        high = max(height, int(image.height * scale + 1e-6))
        left, top = round((wide - width) / 2), round((high - height) / 2)
        whole = image.resize((wide, high), method)
        return whole.crop((left, top, left + width, top + height))


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a small TOML file."""
    try:
        with path.open("rb") as file:
            content = file.read(_TOML_BYTES + 1)
        if len(content) > _TOML_BYTES:
            raise ValueError("too large")
        return tomllib.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read ({reason(error)}); write settings such as size = 224 into it."
        ) from None


def _are_numbers(values: Any, count: int, kind: Any) -> bool:
    return (
        isinstance(values, (tuple, list))
        and len(values) == count
        # Nor NaN, infinity or integers beyond all floats.
        and all(isinstance(v, kind) and not isinstance(v, bool) and abs(v) < 1e30 for v in values)
    )
