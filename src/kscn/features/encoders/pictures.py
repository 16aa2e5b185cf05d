"""What happens to images before a network sees them: from files or arrays to one size and scale."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kscn.constraints import TEXT, Integer, Number, Test, check_parameters, parameter
from kscn.data import Source, as_source, load
from kscn.data.images import ImageSource
from kscn.data.source import ArraySource
from kscn.errors import InputError, reason
from kscn.extras import require
from kscn.modelfile import sha256_of

SIDE = Integer(1, 4096, closed="both")  # pixels


def _each(values: Any, count: int, number: Number) -> bool:
    listed = isinstance(values, (tuple, list)) and len(values) == count
    return listed and all(map(number.allows, values))


PAIR = Test("two of these", lambda size: _each(size, 2, SIDE))
THREE = Test("3 numbers", lambda mean: _each(mean, 3, Number(-1e30, 1e30)))
THREE_POSITIVE = Test("3 numbers above 0", lambda std: _each(std, 3, Number(1e-30, 1e30)))


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

    size: tuple[int, int] = parameter((224, 224), SIDE, PAIR)
    fit: str = parameter("crop", "stretch")
    resize: int | None = parameter(None, SIDE)
    interpolation: str = parameter("bicubic", "bilinear", "nearest", "lanczos")
    mean: tuple[float, ...] = parameter((0.485, 0.456, 0.406), THREE)
    std: tuple[float, ...] = parameter((0.229, 0.224, 0.225), THREE_POSITIVE)
    output: str | None = parameter(None, TEXT)

    def __post_init__(self) -> None:
        check_parameters(self)
        pair = (self.size, self.size) if isinstance(self.size, Integral) else self.size
        for name, values in {"size": pair, "mean": self.mean, "std": self.std}.items():
            object.__setattr__(self, name, tuple(values))
        if self.resize is not None and self.resize < max(self.size):
            raise InputError(
                f"resize={self.resize} must not be below the size {max(self.size)}, which is cut "
                "out of it."
            )

    @classmethod
    def of_table(cls, table: Mapping[str, Any], where: str) -> Self:
        """From settings by name; `where` says in messages where they stand."""
        try:
            return cls(**table)
        except (TypeError, InputError) as error:
            raise InputError(f"{where}: {reason(error)}") from None

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


class Pictures:
    """RGB images by number, each as it is stored and not yet of one size.

    They are images (n, h, w), (n, c, h, w) or (n, h, w, c) with 1 or 3 channels, of integers from 0
    to 255 or fractions from 0 to 1, in whatever `as_source` takes; or a folder of any images.
    """

    def __init__(self, X: Any) -> None:
        if isinstance(X, (str, Path)) and Path(X).is_dir():
            X = load(X, any_size=True).samples
        self.source: Source = as_source(X)
        if not isinstance(self.source, ImageSource):
            self._channels = _channel_axis(self.source)

    def prepared(self, row: int, preprocessing: Preprocessing) -> NDArray[np.float32]:
        """One image as a network takes it."""
        if isinstance(self.source, ImageSource):
            return preprocessing(self.source.original(row, preprocessing.least))
        pixels = self.source[row]
        pixels = pixels[..., None] if pixels.ndim == 2 else np.moveaxis(pixels, self._channels, 2)
        grey_or_rgb = _bytes(pixels, f"Image {row} of {self.source.name}")
        rgb = np.broadcast_to(grey_or_rgb, (*pixels.shape[:2], 3))
        pillow = require("PIL.Image", "images", "reading images")
        return preprocessing(pillow.fromarray(np.ascontiguousarray(rgb)))

    def digest(self, row: int) -> bytes:
        """The sha256 of what an image is made from: the bytes of its file, or its pixels."""
        if isinstance(self.source, ImageSource):
            prepared = self.source.preparation
            values = None if prepared is None else prepared.values  # what 16 bits are read as
            made_from = f"{values} {sha256_of(self.source.file(row))}"
            return hashlib.sha256(made_from.encode()).digest()
        pixels = np.ascontiguousarray(self.source[row])
        form = f"{pixels.shape} {pixels.dtype.str}".encode()
        return hashlib.sha256(form + pixels.tobytes()).digest()


class EmbeddedSource(ArraySource):
    """Embeddings (n, d) of images, which people look at in their place."""

    def __init__(self, embeddings: NDArray[np.float32], pictures: Source) -> None:
        super().__init__(embeddings, f"the embeddings of {pictures.name}")
        self._pictures = pictures
        self.names = pictures.names

    @property
    def pictures(self) -> Source:
        """The images that the embeddings stand for."""
        return self._pictures


def _bytes(pixels: NDArray, name: str) -> NDArray[np.uint8]:
    top = 255 if pixels.dtype.kind in "biu" else 1
    low, high = pixels.min(), pixels.max()
    if not (low >= 0 and high <= top):  # nor NaN
        raise InputError(
            f"{name} has values from {low:.6g} to {high:.6g}; an encoder takes whole numbers from "
            "0 to 255 or fractions from 0 to 1."
        )
    return np.rint(pixels * (255 // top)).astype(np.uint8)


def _channel_axis(source: Source) -> int:
    """Where the channels of an image are; the last axis if it has none."""
    shape = source.shape
    if len(shape) == 3 and shape[0] in (1, 3):
        return 0
    if len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3)):
        return 2
    raise InputError(
        f"{source.name} has the shape {tuple(shape)}, which an encoder cannot take for an image; "
        "give (h, w), (channels, h, w) or (h, w, channels) with 1 or 3 channels."
    )
