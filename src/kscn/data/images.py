"""A folder of images as samples; the names of its sub-folders are the labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kscn.data.base import Source
from kscn.data.dataset import Dataset, make_dataset, reason, require
from kscn.errors import DataError

_SUFFIXES = {
    ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip
# What each mode of Pillow is read as; the others would lose depth, transparency or colour.
_READ_AS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}


class ImageSource(Source):
    """Images in files of one size and mode, decoded when they are read.

    Greyscale images have the shape (h, w), coloured ones (3, h, w).
    """

    def __init__(self, files: list[Path], name: str) -> None:
        size, self._mode = _look(files[0])
        width, height = size
        for file in files[1:]:
            if _look(file) != (size, self._mode):
                (other_width, other_height), mode = _look(file)
                raise DataError(
                    f"{file} is {other_width} x {other_height} {mode}, but {files[0]} is "
                    f"{width} x {height} {self._mode}; bring all images to one size and mode."
                )
        shape = (height, width) if self._mode == "L" else (3, height, width)
        super().__init__(name, len(files), shape, np.dtype(np.uint8))
        self._files = files

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self._gather(np.arange(start, stop))

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        for place, row in enumerate(rows):
            out[place] = self._decode(self._files[row])
        return out

    def _decode(self, file: Path) -> np.ndarray:
        with _open_image(file) as image:
            try:
                pixels = np.asarray(image.convert(self._mode))
            except (OSError, ValueError, SyntaxError, IndexError) as error:
                raise _broken(file, error) from error
        pixels = pixels if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
        if pixels.shape != self.shape:
            raise DataError(f"{file} changed its size since it was opened; open the folder again.")
        return pixels


def open_image_folder(folder: Path) -> Dataset:
    """All images in a folder, in alphabetical order.

    Parameters
    ----------
    folder : Path
        Either the images themselves (no labels) or sub-folders of them, one per class. Hidden
        files and files of other kinds are passed over.
    """
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in _SUFFIXES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    if not files:
        raise DataError(f"{folder} is a folder without images; give one that holds image files.")
    classes = [file.relative_to(folder).parts[0] for file in files if file.parent != folder]
    if classes and len(classes) < len(files):
        raise DataError(
            f"{folder} has images both beside and inside its sub-folders; keep either a flat "
            "folder or one sub-folder per class."
        )
    return make_dataset(ImageSource(files, str(folder)), classes or None, folder.resolve().name)


def _look(file: Path) -> tuple[tuple[int, int], str]:
    """Size and mode of an image from its header, without decoding it."""
    with _open_image(file) as image:
        if image.mode not in _READ_AS:
            raise DataError(f"{file} is a {image.mode} image; convert it to greyscale or RGB.")
        return image.size, _READ_AS[image.mode]


def _open_image(file: Path) -> Any:
    pillow = require("PIL.Image", "images", "images")
    try:
        return pillow.open(file)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise _broken(file, error) from error


def _broken(file: Path, error: Exception) -> DataError:
    why = reason(error).replace(f" {str(file)!r}", "")
    return DataError(f"{file} is not a readable image ({why}); repair or remove it.")
