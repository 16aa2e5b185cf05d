"""A folder of images as samples; the names of its sub-folders are the labels."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kscn.data.base import Source
from kscn.data.dataset import Dataset, make_dataset, reason, require
from kscn.data.limits import check_bytes
from kscn.errors import DataError

_SUFFIXES = {
    ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip
# What these files hold. Pillow knows more formats, some of which start other programs.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# What each mode of Pillow is read as; the others would lose depth, transparency or colour.
_READ_AS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}
# EXIF's orientations, by what turns the stored pixels upright; from 5 on, sides change places.
_ORIENTATION = 0x0112
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


class ImageSource(Source):
    """Images in files of one size and mode, decoded and turned upright when they are read.

    Greyscale images have the shape (h, w), coloured ones (3, h, w).
    """

    on_disk = True

    def __init__(self, files: list[Path], name: str) -> None:
        size, self._mode = _look(files[0])
        width, height = size
        for file in files[1:]:
            if _look(file) != (size, self._mode):
                (other_width, other_height), mode = _look(file)
                raise DataError(
                    f"{file} is {other_width} x {other_height} {mode}, but {files[0]} is "
                    f"{width} x {height} {self._mode}; bring all images to one size and mode, "
                    f"for instance by: kscn data resize {shlex.quote(name)} -o resized/ --size 64"
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
        with open_image(file) as image:
            try:
                pixels = np.asarray(upright(image).convert(self._mode))
            except Exception as error:  # see open_image
                raise broken(file, error) from error
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
        files, files of other kinds and links to folders, which may run in circles, are passed over.
    """
    files = sorted(images_below(folder))
    if not files:
        raise DataError(f"{folder} is a folder without images; give one that holds image files.")
    classes = [file.relative_to(folder).parts[0] for file in files if file.parent != folder]
    if classes and len(classes) < len(files):
        raise DataError(
            f"{folder} has images both beside and inside its sub-folders; keep either a flat "
            "folder or one sub-folder per class."
        )
    return make_dataset(ImageSource(files, str(folder)), classes or None, folder.resolve().name)


def is_image_name(path: Path) -> bool:
    """Whether a file is named like an image."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def images_below(folder: Path) -> Iterator[Path]:
    """Files that are named like images, in a folder and in those below it."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif is_image_name(Path(entry.name)) and entry.is_file():
                    yield Path(entry.path)


def _look(file: Path) -> tuple[tuple[int, int], str]:
    """Size, once upright, and mode of an image from its header, without decoding it."""
    with open_image(file) as image:
        if image.mode not in _READ_AS:
            raise DataError(
                f"{file} is a {image.mode} image; convert it to greyscale or RGB, as kscn data "
                "resize does."
            )
        width, height = image.size
        # Pillow gives the size of a TIFF image as it will be once upright.
        if image.format != "TIFF" and _orientation(image) >= 5:
            width, height = height, width
        return (width, height), _READ_AS[image.mode]


def upright(image: Any) -> Any:
    """An open image, decoded, as its camera was held."""
    image.load()  # which turns a TIFF image
    turn = _TURNS.get(_orientation(image))
    transpose = require("PIL.Image", "images", "images").Transpose
    return image if turn is None else image.transpose(transpose[turn])


def _orientation(image: Any) -> int:
    """What EXIF says about an image, 1 (upright) if it says nothing that can be understood."""
    general = require("PIL.Image", "images", "images").Image
    try:
        # That of PNG images would decode them in search of EXIF behind the pixels.
        found = general.getexif(image).get(_ORIENTATION)
    except Exception:  # see `open_image`; damaged EXIF is no reason to refuse good pixels
        return 1
    return found if found in _TURNS else 1


@contextmanager
def open_image(file: Path) -> Iterator[Any]:
    """An image of which only the header has been read, after a look at what it would unpack to."""
    pillow = require("PIL.Image", "images", "images")
    with ExitStack() as stack:
        try:
            # Not by its name: Pillow would map the file, and mix up the pixels of a turned TIFF.
            stream = stack.enter_context(file.open("rb"))
            image = stack.enter_context(pillow.open(stream, formats=_FORMATS))
        # Pillow passes faults of a file on as whatever the code for its format met.
        except Exception as error:
            raise broken(file, error) from error
        pixels = image.width * image.height
        check_bytes(str(file), 3 * pixels)
        if pillow.MAX_IMAGE_PIXELS is not None and pixels > pillow.MAX_IMAGE_PIXELS:
            raise DataError(
                f"{file} has {pixels} pixels, above Pillow's limit of {pillow.MAX_IMAGE_PIXELS}; "
                "make it smaller."
            )
        yield image


def broken(file: Path, error: Exception) -> DataError:
    """What to raise where a file cannot be decoded."""
    why = reason(error).split(" <_io.")[0]  # the name has been said
    return DataError(f"{file} is not a readable image ({why}); repair or remove it.")
