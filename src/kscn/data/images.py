"""A folder of images as samples; the names of its sub-folders are the labels."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from kscn.data.base import Source
from kscn.data.dataset import Dataset, make_dataset
from kscn.data.decoding import Look, Values, look, read_plain, read_rgb, read_square, value_range
from kscn.errors import DataError
from kscn.extras import require

_SUFFIXES = {
    ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip
# More would take hours to cluster and gigabytes to hold, and shapes are told apart with less.
MOST_PIXELS = 1024
_NAMED = 3  # files in a message
_SIZE = "--size 64 (size=64 in Python)"
_SKIP = "--skip-broken (skip_broken=True in Python)"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Preparation:
    """How images of any size and mode become samples of one shape.

    Attributes
    ----------
    size : int
        Pixels a side; the longer side of an image is cut at both ends.
    grey : bool or None
        Whether colours are left out; None leaves them out if no image has any.
    values : tuple of float, or None
        The values that become black and white in images of 16 or 32 bits; None finds them.
    """

    size: int
    grey: bool | None = None
    values: Values | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MOST_PIXELS:
            raise DataError(f"size is {self.size} pixels a side; give 1 to {MOST_PIXELS}.")
        low, high = self.values or (0, 1)
        if not (math.isfinite(high - low) and low < high):
            raise DataError(
                f"a range from {low} to {high} cannot be used; give the lower value first."
            )

    def read(self, file: Path, content: BinaryIO | None = None) -> np.ndarray:
        """The sample that an image file becomes; `content` is what it holds, if not on disk."""
        return _channels_first(read_square(file, self.size, self.mode, self.values, content))

    @property
    def mode(self) -> str:
        """Pillow's mode of what comes out."""
        return "L" if self.grey else "RGB"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample."""
        return (self.size, self.size) if self.grey else (3, self.size, self.size)


class ImageSource(Source):
    """Images in files, decoded and turned upright when they are read.

    Greyscale images have the shape (h, w), coloured ones (3, h, w). Those that are brought to one
    size are decoded once and kept in a temporary file.

    Attributes
    ----------
    files : list of Path
        Where they are.
    names : list of str
        The same, as they are called from the folder.
    preparation : Preparation or None
        How they are brought to one size, if they are.
    left_out : dict of str to str
        Names of files that cannot be read, and why.
    """

    on_disk = True

    def __init__(
        self,
        files: Sequence[Path],
        folder: Path,
        shape: tuple[int, ...],
        preparation: Preparation | None = None,
    ) -> None:
        super().__init__(str(folder), len(files), shape, np.dtype(np.uint8))
        self.files = list(files)
        self.names = _names(files, folder)
        self.preparation = preparation
        self.left_out: dict[str, str] = {}
        self._folder = folder
        if preparation is not None:
            self._scratch = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
            self._places = {file: place for place, file in enumerate(files)}
            self._kept = np.zeros(len(files), dtype=bool)

    def leave_out(self, broken: Mapping[Path, str]) -> None:
        """Go on without some files, for the reasons given."""
        self.files = [file for file in self.files if file not in broken]
        self.names = _names(self.files, self._folder)
        self.left_out = dict(zip(_names(broken, self._folder), broken.values(), strict=True))
        self._length = len(self.files)

    def original(self, row: int, least: int | None = None) -> Any:
        """One image at its own size, or at least so many pixels a side, upright and RGB."""
        values = None if self.preparation is None else self.preparation.values
        try:
            return read_rgb(self.files[row], values, least)
        except DataError as error:
            raise _refused([str(error)]) from error

    def pixels(self, file: Path) -> np.ndarray:
        """The sample in a file."""
        if self.preparation is None:
            return self._decode(file)
        scratch, place = self._scratch.fileno(), self._places[file]
        if self._kept[place]:
            kept = os.pread(scratch, self.row_bytes, place * self.row_bytes)
            return np.frombuffer(kept, dtype=np.uint8).reshape(self.shape)
        pixels = self.preparation.read(file)
        # Not by a memory map: a write to one that finds the disk full ends the process.
        with suppress(OSError):
            written = os.pwrite(scratch, pixels.tobytes(), place * self.row_bytes)
            self._kept[place] = written == self.row_bytes
        return pixels

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        for place, row in enumerate(rows.tolist()):
            try:
                out[place] = self.pixels(self.files[row])
            except DataError as error:
                raise _refused([str(error)]) from error
        return out

    def _decode(self, file: Path) -> np.ndarray:
        pixels = _channels_first(read_plain(file, "L" if len(self.shape) == 2 else "RGB"))
        if pixels.shape != self.shape:
            raise DataError(f"{file} changed its size since it was opened; open the folder again.")
        return pixels


def open_image_folder(
    folder: Path,
    preparation: Preparation | None = None,
    *,
    names: Sequence[str] | None = None,
    decode: bool = False,
    skip_broken: bool = False,
) -> Dataset:
    """All images in a folder, in alphabetical order, or a single one.

    A folder has either the images themselves (no labels) or sub-folders of them, one per class;
    `names` are those to open, instead of looking for them. Without a `preparation` they must have
    one shape. With `decode` all are decoded now, so that broken ones are known before any is
    needed; with `skip_broken` those are left out, instead of refusing the folder.
    """
    require("PIL.Image", "images", "reading images")  # or else every single file would seem broken
    title = folder.resolve().name
    if folder.is_file():
        files, folder = [folder], folder.parent
    else:
        files = find_images(folder) if names is None else [folder / name for name in names]
    looks, faults = _tried(lambda file: look(file, preparation is not None), files)
    try:
        source = _source(looks, folder, preparation) if looks else None
    except DataError as error:
        if not faults or skip_broken:
            raise
        raise DataError(  # both at once, so that nobody meets them one after the other
            f"{str(error).rstrip('.')}; and leave out {len(faults)} of {len(files)} images, which "
            f"cannot be read, by {_SKIP}."
        ) from error
    if source is not None and (decode or skip_broken):
        faults |= _tried(source.pixels, source.files)[1]
    broken = {file: faults[file] for file in files if file in faults}
    if broken and names is not None:
        raise DataError(
            f"{len(broken)} of the {len(files)} images that were fitted are not in {folder} or "
            f"cannot be read ({_few(broken)}); give the folder that holds them with --data."
        )
    if source is None or len(broken) == len(files) or (broken and not skip_broken):
        several = f"{len(broken)} of {len(files)} images in {folder} cannot be read"
        raise _refused(list(broken.values()), f"{several} ({_few(broken)}); repair or remove them")
    if broken:
        source.leave_out(broken)
    return make_dataset(source, _classes(source.files, folder), title)


def _source(
    looks: Mapping[Path, Look], folder: Path, preparation: Preparation | None
) -> ImageSource:
    """Images of which the headers are known, as samples of one shape."""
    if preparation is not None:
        grey, values = preparation.grey, preparation.values
        if grey is None:
            grey = all(seen.grey for seen in looks.values())
        preparation = replace(preparation, grey=grey, values=values or value_range(looks.values()))
        return ImageSource(list(looks), folder, preparation.shape, preparation)
    first = next(iter(looks.values()))
    for seen in looks.values():
        if seen.read_as is None:
            raise DataError(
                f"{seen.file} is a {seen.mode} image; read images of any mode by {_SIZE}."
            )
        if str(seen) != str(first):
            raise DataError(
                f"{seen.file} is {seen}, but {first.file} is {first}; bring all images to one size "
                f"and mode by {_SIZE}."
            )
    sides = (first.height, first.width)
    return ImageSource(list(looks), folder, sides if first.read_as == "L" else (3, *sides))


def _classes(files: Sequence[Path], folder: Path) -> list[str] | None:
    """The sub-folder of every file, None if they are in the folder itself."""
    classes = [file.relative_to(folder).parts[0] for file in files if file.parent != folder]
    if classes and len(classes) < len(files):
        raise DataError(
            f"{folder} has images both beside and inside its sub-folders; keep either a flat "
            "folder or one sub-folder per class."
        )
    return classes or None


def _tried(
    read: Callable[[Path], Result], files: Iterable[Path]
) -> tuple[dict[Path, Result], dict[Path, str]]:
    """What was read from the files, and what is wrong with the others."""
    results, faults = {}, {}
    for file in files:
        try:
            results[file] = read(file)
        except DataError as error:
            faults[file] = str(error)
    return results, faults


def _refused(faults: list[str], several: str = "") -> DataError:
    """What is wrong with one file, or with several in other words, and that it can be left out."""
    if len(faults) == 1:
        return DataError(f"{faults[0].rstrip('.')}, or leave it out by {_SKIP}.")
    return DataError(f"{several}, or leave them out by {_SKIP}.")


def _few(files: Iterable[Path]) -> str:
    """The first of some files by their names."""
    names = [file.name for file in files]
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _names(files: Iterable[Path], folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in files]


def _channels_first(image: Any) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def is_image_name(path: Path) -> bool:
    """Whether a file is named like an image."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def find_images(folder: Path) -> list[Path]:
    """Files that are named like images, in a folder and in those below it, in alphabetical order.

    Hidden files, pipes and links to folders, which may run in circles, are passed over.
    """
    found, waiting = [], [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif is_image_name(Path(entry.name)) and entry.is_file():
                    found.append(Path(entry.path))
    if not found:
        raise DataError(f"{folder} is a folder without images; give one that holds image files.")
    return sorted(found)
