"""Samples as pictures of Pillow: files, or arrays of pixels; and embeddings that stand for them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.data import Source, as_source, load
from kscn.data.images import ImageSource
from kscn.data.source import ArraySource
from kscn.errors import InputError
from kscn.extras import require
from kscn.modelfile import sha256_of


class Pictures:
    """RGB images by number, each as it is stored and not yet of one size.

    They are images (n, h, w), (n, c, h, w) or (n, h, w, c) with 1 or 3 channels, of integers from 0
    to 255 or fractions from 0 to 1, in whatever `as_source` takes; or a folder of any images.
    """

    def __init__(self, X: Any) -> None:
        if isinstance(X, (str, Path)) and Path(X).is_dir():
            X = load(X, any_size=True).samples
        self.source: Source = as_source(X)
        self.files = self.source.files if isinstance(self.source, ImageSource) else None
        if self.files is None:
            _channel_axis(self.source.shape, self.source.name)

    def __len__(self) -> int:
        return len(self.source)

    def image(self, row: int, least: int) -> Any:
        """One image of Pillow, RGB, with at least so many pixels a side if it has them."""
        if isinstance(self.source, ImageSource):
            return self.source.original(row, least)
        pillow = require("PIL.Image", "images", "reading images")
        pixels, name = self.source[row], f"Image {row} of {self.source.name}"
        axis = _channel_axis(pixels.shape, name)
        if axis is not None:
            pixels = np.moveaxis(pixels, axis, -1)
            pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels
        return pillow.fromarray(np.ascontiguousarray(_bytes(pixels, name))).convert("RGB")

    def digest(self, row: int) -> bytes:
        """The sha256 of what an image is made from: the bytes of its file, or its pixels."""
        if self.files is None:
            pixels = np.ascontiguousarray(self.source[row])
            made = hashlib.sha256(f"{pixels.shape} {pixels.dtype.str}".encode())
            made.update(pixels.data)
            return made.digest()
        made = sha256_of(self.files[row])
        prepared = getattr(self.source, "preparation", None)
        if prepared is not None and prepared.values is not None:  # what 16 bits are read as
            made.update(repr(tuple(map(float, prepared.values))).encode())
        return made.digest()


class EmbeddedSource(ArraySource):
    """Embeddings (n, d) of images, which people look at in their place."""

    def __init__(self, embeddings: NDArray[np.float16], pictures: Source) -> None:
        super().__init__(embeddings.astype(np.float32), f"the embeddings of {pictures.name}")
        self._pictures = pictures
        self.names = pictures.names

    @property
    def pictures(self) -> Source:
        """The images that the embeddings stand for."""
        return self._pictures


def _bytes(pixels: NDArray, name: str) -> NDArray[np.uint8]:
    if pixels.dtype == np.uint8:
        return pixels
    whole = pixels.dtype.kind in "biu"
    low, high = pixels.min(), pixels.max()
    if not (low >= 0 and high <= (255 if whole else 1)):  # nor NaN
        raise InputError(
            f"{name} has values from {low:.6g} to {high:.6g}; an encoder takes whole numbers from "
            "0 to 255 or fractions from 0 to 1."
        )
    return pixels.astype(np.uint8) if whole else np.rint(255 * pixels).astype(np.uint8)


def _channel_axis(shape: tuple[int, ...], name: str) -> int | None:
    """Where the channels of an image are; None if it has none."""
    if len(shape) == 2:
        return None
    for axis in (0, 2):
        if len(shape) == 3 and shape[axis] in (1, 3):
            return axis
    raise InputError(
        f"{name} has the shape {tuple(shape)}, which an encoder cannot take for an image; give "
        "(h, w), (channels, h, w) or (h, w, channels) with 1 or 3 channels."
    )
