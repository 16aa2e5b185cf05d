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
        if not isinstance(self.source, ImageSource):
            self._channels = _channel_axis(self.source)

    def __len__(self) -> int:
        return len(self.source)

    def image(self, row: int, least: int) -> Any:
        """One image of Pillow, RGB, with at least so many pixels a side if it has them."""
        if isinstance(self.source, ImageSource):
            return self.source.original(row, least)
        pillow = require("PIL.Image", "images", "reading images")
        pixels = self.source[row]
        pixels = pixels[..., None] if pixels.ndim == 2 else np.moveaxis(pixels, self._channels, 2)
        grey_or_rgb = _bytes(pixels, f"Image {row} of {self.source.name}")
        rgb = np.broadcast_to(grey_or_rgb, (*pixels.shape[:2], 3))
        return pillow.fromarray(np.ascontiguousarray(rgb))

    def digest(self, row: int) -> bytes:
        """The sha256 of what an image is made from: the bytes of its file, or its pixels."""
        if isinstance(self.source, ImageSource):
            prepared = self.source.preparation
            values = None if prepared is None else prepared.values  # what 16 bits are read as
            return sha256_of(self.source.files[row], start=repr(values).encode()).digest()
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
