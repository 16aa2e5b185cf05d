"""Samples as PNG pictures: what a value looks like, and the bytes of the file."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CHANNELS = (1, 3, 4)  # greyscale, RGB, RGBA
# What grows and what shrinks along a direction; strong on white and on near-black.
_UP, _DOWN = (226, 98, 18), (47, 120, 205)


def is_image(shape: tuple[int, ...]) -> bool:
    """Whether samples of a shape are pictures: (h, w), (c, h, w) or (h, w, c)."""
    if len(shape) == 3:
        shape = shape[:2] if _colours_last(shape) else shape[1:]
    return len(shape) == 2 and min(shape) > 1


def _colours_last(shape: tuple[int, ...]) -> bool:
    return shape[2] in _CHANNELS and shape[0] not in _CHANNELS


@dataclass(frozen=True)
class Painter:
    """Turns samples into pixels."""

    shape: tuple[int, ...]  # of one sample: (h, w), (c, h, w) or (h, w, c)
    low: float  # drawn black
    high: float  # drawn white
    most: int = 64  # longest side in pixels; larger pictures are averaged down

    def pixels(self, samples: NDArray) -> NDArray[np.uint8]:
        """Pictures (n, h, w, channels) of samples (n, *shape), with 1 or 3 channels."""
        values = (self._channels_last(samples) - self.low) / max(self.high - self.low, 1e-300)
        return np.rint(255 * np.clip(self._shrunk(values), 0, 1)).astype(np.uint8)

    def change(self, difference: NDArray) -> NDArray[np.uint8]:
        """Pictures (n, h, w, 4) of signed samples: orange grows, blue shrinks, clear stays.

        Each is drawn at its own full strength; colours of an image are averaged.
        """
        values = self._shrunk(self._channels_last(difference)).mean(axis=3)
        most = np.abs(values).max(axis=(1, 2), keepdims=True)
        strength = np.abs(values) / np.maximum(most, 1e-300)
        out = np.empty((*values.shape, 4), dtype=np.uint8)
        out[..., :3] = np.where((values > 0)[..., None], _UP, _DOWN)
        out[..., 3] = np.rint(255 * strength)
        return out

    def _channels_last(self, samples: NDArray) -> NDArray:
        values = np.asarray(samples, dtype=np.float64).reshape(len(samples), *self.shape)
        if len(self.shape) == 2:
            return values[..., None]
        if not _colours_last(self.shape):
            values = np.moveaxis(values, 1, -1)
        if values.shape[-1] in (3, 4):  # a fourth channel is transparency
            return values[..., :3]
        return values.mean(axis=-1, keepdims=True)

    def _shrunk(self, values: NDArray) -> NDArray:
        """Means over blocks of pixels, so that no side is longer than `most`."""
        n, h, w, c = values.shape
        block = -(-max(h, w) // self.most)
        if block == 1:
            return values
        # Edges that do not fill a block are repeated until they do.
        values = np.pad(values, ((0, 0), (0, -h % block), (0, -w % block), (0, 0)), mode="edge")
        h, w = values.shape[1] // block, values.shape[2] // block
        return values.reshape(n, h, block, w, block, c).mean(axis=(2, 4))


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """A picture (h, w, channels) with 1, 3 or 4 channels, as a PNG file in its own address."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def sheet(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int]:
    """Pictures (n, h, w, c) side by side in one of about equal sides; also how many per row."""
    n, h, w, c = pixels.shape
    columns = max(1, round((n * h / w) ** 0.5))
    rows = -(-n // columns)
    tiles = np.zeros((rows * columns, h, w, c), dtype=np.uint8)
    tiles[:n] = pixels
    tiles = tiles.reshape(rows, columns, h, w, c).swapaxes(1, 2)
    return tiles.reshape(rows * h, columns * w, c), columns
