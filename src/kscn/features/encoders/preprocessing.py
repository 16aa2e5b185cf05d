"""What happens to an image before a network sees it: size, crop, channels, mean and deviation."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.errors import InputError, reason
from kscn.extras import require

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Of the images of ImageNet, which most networks for photographs were trained with.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 224  # pixels a side that most of them take
LARGEST = 4096
FITS = ("crop", "letterbox", "stretch")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")
CHANNELS = {"RGB": 3, "BGR": 3, "L": 1}
LAYOUTS = ("NCHW", "NHWC")
POOLS = ("auto", "first", "mean")
_TOML_BYTES = 64 * 1024


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a network, and its output a vector.

    Attributes
    ----------
    size : int or (int, int)
        Pixels a side, or height and width, of what the network takes.
    fit : {"crop", "letterbox", "stretch"}
        What becomes of an image of another shape: its middle is cut out, it gets borders, or its
        sides are scaled apart.
    resize : int, optional
        With "crop": the shorter side is scaled to this before `size` is cut out; by default such
        that as much as possible is seen.
    interpolation : {"nearest", "bilinear", "bicubic", "lanczos"}
        How pixels are made from those of another size.
    mean, std : tuple of float
        Per channel, subtracted from and divided into values between 0 and 1; by default those of
        ImageNet. A network that takes values up to 255 has mean 0 and std 1/255.
    channels : {"RGB", "BGR", "L"}
        Their order; "L" is grey.
    layout : {"NCHW", "NHWC"}
        Whether channels come before or after height and width.
    pool : {"auto", "first", "mean"}
        Of an output that is a sequence (n, t, d), the first token ("auto" too) or the mean. Maps
        (n, d, h, w) are averaged over their positions, vectors (n, d) stay as they are.
    output : str, optional
        Which output of an ONNX graph to take; the first by default.
    """

    size: Any = SIZE
    fit: str = "crop"
    resize: int | None = None
    interpolation: str = "bicubic"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels: str = "RGB"
    layout: str = "NCHW"
    pool: str = "auto"
    output: str | None = None

    def __post_init__(self) -> None:
        self._check_names()
        size = (self.size, self.size) if isinstance(self.size, Integral) else self.size
        if not _are_pixels(size):
            raise InputError(
                f"size={self.size!r} is not the size of an image; give pixels a side, or height "
                f"and width, from 1 to {LARGEST}."
            )
        fits = self.resize is None or _are_pixels((self.resize,) * 2)
        if not fits or int(self.resize or LARGEST) < max(map(int, size)):
            raise InputError(
                f"resize={self.resize!r} must be a number of pixels that is not below the size "
                f"{max(size)}, which is cut out of it."
            )
        usual = (MEAN, STD) if self.channels != "L" else ((0.449,), (0.226,))
        if self.channels == "BGR":
            usual = (MEAN[::-1], STD[::-1])
        mean, std = (
            usual if given is None else given
            for usual, given in zip(usual, (self.mean, self.std), strict=True)
        )
        for name, values in (("mean", mean), ("std", std)):
            if not _are_numbers(values) or len(values) != CHANNELS[self.channels]:
                raise InputError(
                    f"{name}={values!r} must be {CHANNELS[self.channels]} numbers, one for each "
                    f"channel of {self.channels}."
                )
        if min(std) <= 0:
            raise InputError(f"std={std!r} must be above 0; values are divided by it.")
        for name, value in (
            ("size", (int(size[0]), int(size[1]))),
            ("mean", tuple(map(float, mean))),
            ("std", tuple(map(float, std))),
        ):
            object.__setattr__(self, name, value)

    def _check_names(self) -> None:
        for name, known in (
            ("fit", FITS),
            ("interpolation", INTERPOLATIONS),
            ("channels", tuple(CHANNELS)),
            ("layout", LAYOUTS),
            ("pool", POOLS),
        ):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name}={getattr(self, name)!r} is not known; use {', '.join(known)}."
                )
        if self.output is not None and not isinstance(self.output, str):
            raise InputError(f"output={self.output!r} must be the name of an output.")

    @classmethod
    def of_table(cls, table: Mapping[str, Any], where: str) -> Preprocessing:
        """From settings by name; `where` says in messages where they stand."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(table) - known)
        if unknown:
            raise InputError(
                f"{where} has the setting {reason(unknown[0])!r}, which is not known; use "
                f"{', '.join(sorted(known))}."
            )
        listed: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in table.items()
        }
        try:
            return cls(**listed)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def table(self) -> dict[str, Any]:
        """Plain values from which `of_table` makes the same again."""
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {name: value for name, value in listed.items() if value is not None}

    def replaced(self, **settings: Any) -> Preprocessing:
        """The same with other settings."""
        return replace(self, **settings)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image as the network takes it."""
        (height, width), channels = self.size, CHANNELS[self.channels]
        if self.layout == "NCHW":
            return (channels, height, width)
        return (height, width, channels)

    @property
    def least(self) -> int:
        """Pixels a side of an image that are enough to make it smaller from."""
        return 2 * max(*self.size, self.resize or 0)

    def __call__(self, image: Any) -> NDArray[np.float32]:
        """An RGB image of Pillow as the network takes it, of the shape `shape`."""
        image = self._sized(image)
        pixels = np.asarray(image.convert("L") if self.channels == "L" else image)
        pixels = pixels.reshape(*self.size, -1)
        first = np.empty((CHANNELS[self.channels], *self.size), dtype=np.float32)
        for channel, (mean, std) in enumerate(zip(self.mean or (), self.std or (), strict=True)):
            # Channel by channel and in place, which takes a third of the time.
            own = pixels[..., -1 - channel if self.channels == "BGR" else channel]
            np.multiply(own, np.float32(1 / (255 * std)), out=first[channel])
            first[channel] -= np.float32(mean / std)
        return first if self.layout == "NCHW" else np.ascontiguousarray(first.transpose(1, 2, 0))

    def _sized(self, image: Any) -> Any:
        pillow = require("PIL.Image", "images", "reading images")
        height, width = self.size
        method = pillow.Resampling[self.interpolation.upper()]
        if self.fit == "stretch":
            return image.resize((width, height), method)
        if self.fit == "letterbox":
            ops = require("PIL.ImageOps", "images", "reading images")
            return ops.pad(image, (width, height), method, color=self._border())
        if self.resize is None:
            scale = max(width / image.width, height / image.height)
        else:
            scale = self.resize / min(image.width, image.height)
        # At least what is cut out, whatever rounding says.
        wide = max(width, int(image.width * scale + 1e-6))
        high = max(height, int(image.height * scale + 1e-6))
        whole = image.resize((wide, high), method)
        left, top = round((wide - width) / 2), round((high - height) / 2)
        return whole.crop((left, top, left + width, top + height))

    def _border(self) -> tuple[int, int, int]:
        """The colour that becomes 0: the mean."""
        mean = self.mean or ()
        red, green, blue = (*mean, *mean, *mean)[:3] if len(mean) == 1 else mean
        if self.channels == "BGR":
            red, blue = blue, red
        red, green, blue = (round(255 * min(1.0, max(0.0, v))) for v in (red, green, blue))
        return red, green, blue


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


def _are_pixels(size: Any) -> bool:
    return (
        isinstance(size, (tuple, list))
        and len(size) == 2
        and all(isinstance(s, Integral) and not isinstance(s, bool) for s in size)
        and all(1 <= s <= LARGEST for s in size)
    )


def _are_numbers(values: Any) -> bool:
    return isinstance(values, (tuple, list)) and all(
        isinstance(v, Real) and not isinstance(v, bool) and np.isfinite(float(v)) for v in values
    )
