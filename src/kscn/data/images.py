"""Images as samples: files of any format, and folders whose sub-folders are the labels.

Files may be hostile: what one would unpack to is known from its header before it is decoded, and
Pillow's formats that start other programs are not opened. Images of 16 and 32 bits are scaled to 8
by one range of values for all of them, so that dark ones stay dark.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from kscn.data.base import Source
from kscn.data.dataset import Dataset, make_dataset
from kscn.data.limits import check_bytes, readable
from kscn.errors import DataError
from kscn.extras import require

_SUFFIXES = {
    ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip
# More would take hours to cluster and gigabytes to hold, and shapes are told apart with less.
MOST_PIXELS = 1024
_NAMED = 3  # files in a message
# The values that become black and white.
Values = tuple[float, float]

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Modes of Pillow that are read without loss, and as what; all that have no colours.
_READ_AS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}
_GREY = ("1", "L", "LA", "La", "F")
_ORIENTATION = 0x0112  # of EXIF; from 5 on, the sides change places
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

    def found(self, looks: Iterable[Look]) -> Preparation:
        """The same with what was left open, so that it fits images that were looked at."""
        looks = list(looks)
        used = [seen.values for seen in looks if seen.values is not None]
        values = (min(low for low, _ in used), max(high for _, high in used)) if used else None
        grey = all(seen.grey for seen in looks) if self.grey is None else self.grey
        return replace(self, grey=grey, values=self.values or values)

    def read(self, file: Path, content: BinaryIO | None = None) -> np.ndarray:
        """The sample that an image file becomes; `content` is what it holds, if not on disk."""
        mode, side, method = "L" if self.grey else "RGB", self.size, pillow().Resampling.LANCZOS
        image = read_image(file, mode, values=self.values, least=2 * side, content=content)
        return _channels_first(pillow("ImageOps").fit(image, (side, side), method=method))

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
    names : list of str
        Their files, as they are called from the folder.
    preparation : Preparation or None
        How they are brought to one size, if they are.
    left_out : dict of str to str
        Names of files that cannot be read, and why.
    """

    on_disk = True

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        shape: tuple[int, ...],
        preparation: Preparation | None = None,
    ) -> None:
        super().__init__(str(folder), (len(names), *shape), np.dtype(np.uint8))
        self.names = self._names = list(names)
        self.preparation = preparation
        self.left_out: dict[str, str] = {}
        self._folder = folder
        self._scratch = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
        self._kept: dict[str, int] = {}  # where in it

    def leave_out(self, kept: list[str], broken: Mapping[str, str]) -> None:
        """Go on with some files only, without others for the reasons given."""
        self.names = self._names = kept
        self.left_out = {name: broken[name] for name in sorted(broken)}
        self._length = len(kept)

    def file(self, row: int) -> Path:
        """Where an image is."""
        return self._folder / self._names[row]

    def original(self, row: int, least: int | None = None) -> Any:
        """One image at its own size, or at least so many pixels a side, upright and RGB."""
        values = None if self.preparation is None else self.preparation.values
        return read_image(self.file(row), values=values, least=least)

    def pixels(self, name: str) -> np.ndarray:
        """The sample in a file."""
        file = self._folder / name
        if self.preparation is None:
            pixels = _channels_first(read_image(file, "L" if len(self.shape) == 2 else "RGB"))
            if pixels.shape != self.shape:
                raise DataError(f"{file} changed since it was opened; open the folder again.")
            return pixels
        if name in self._kept:
            kept = os.pread(self._scratch.fileno(), self.row_bytes, self._kept[name])
            return np.frombuffer(kept, dtype=np.uint8).reshape(self.shape)
        pixels, place = self.preparation.read(file), len(self._kept) * self.row_bytes
        # Not by a memory map: a write to one that finds the disk full ends the process.
        with suppress(OSError):
            if os.pwrite(self._scratch.fileno(), pixels.tobytes(), place) == self.row_bytes:
                self._kept[name] = place
        return pixels

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        for place, row in enumerate(rows.tolist()):
            out[place] = self.pixels(self._names[row])
        return out


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
    pillow()  # or else every single file would seem broken
    title = folder.resolve().name
    if folder.is_file():
        folder, wanted = folder.parent, [folder.name]
    else:
        wanted = find_images(folder) if names is None else [*names]
    looks, broken = _tried(lambda name: look(folder / name, preparation is not None), wanted)
    if looks:
        source = _source(looks, folder, preparation)
        if decode or skip_broken:
            broken |= _tried(source.pixels, looks)[1]
    if broken and (not skip_broken or len(broken) == len(wanted)):
        if len(broken) == 1 and names is None:
            raise DataError(next(iter(broken.values())))
        advice = f"repair or remove them, or leave them out by {_SKIP}"
        if names is not None:
            advice = "give the folder that holds those that were fitted with --data"
        listed = ", ".join(sorted(broken)[:_NAMED])
        several = f"{len(broken)} of {len(wanted)} images in {folder} cannot be read ({listed})"
        raise DataError(f"{several}; {advice}.")
    kept = [name for name in looks if name not in broken]
    source.leave_out(kept, broken)
    return make_dataset(source, _classes(kept, folder), title)


def _source(
    looks: Mapping[str, Look], folder: Path, preparation: Preparation | None
) -> ImageSource:
    """Images of which the headers are known, as samples of one shape."""
    if preparation is not None:
        preparation = preparation.found(looks.values())
        return ImageSource(folder, [*looks], preparation.shape, preparation)
    example, first = next(iter(looks.items()))
    for name, seen in looks.items():
        if seen.mode not in ("L", "RGB") or seen[:3] != first[:3]:
            raise DataError(
                f"{folder / name} is {seen.width} x {seen.height} {seen.mode}, and {example} is "
                f"{first.width} x {first.height} {first.mode}; bring all images to one size, grey "
                f"or RGB, by {_SIZE}."
            )
    sides = (first.height, first.width)
    return ImageSource(folder, [*looks], sides if first.mode == "L" else (3, *sides))


def _classes(names: Sequence[str], folder: Path) -> list[str] | None:
    """The sub-folder of every file, None if they are in the folder itself."""
    classes = [name.split("/")[0] for name in names if "/" in name]
    if classes and len(classes) < len(names):
        raise DataError(
            f"{folder} has images both beside and inside its sub-folders; keep either a flat "
            "folder or one sub-folder per class."
        )
    return classes or None


def _tried(
    read: Callable[[str], Result], names: Iterable[str]
) -> tuple[dict[str, Result], dict[str, str]]:
    """What was read from the files, and what is wrong with the others."""
    results, faults = {}, {}
    for name in names:
        try:
            results[name] = read(name)
        except DataError as error:
            faults[name] = str(error)
    return results, faults


def _channels_first(image: Any) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def is_image_name(path: Path) -> bool:
    """Whether a file is named like an image."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def find_images(folder: Path) -> list[str]:
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
    return [file.relative_to(folder).as_posix() for file in sorted(found)]


# One file ---------------------------------------------------------------------------------------


class Look(NamedTuple):
    """What the header of an image tells."""

    width: int  # pixels, once upright
    height: int
    mode: str  # L or RGB if it is that without losing depth, transparency or colour
    grey: bool  # whether it has no colours
    values: Values | None  # in use, if that was asked for and there are more than 8 bits


def look(file: Path, measure: bool = False) -> Look:
    """Size and mode of an image file; to measure the values in use, only deep ones are decoded."""
    with _opened(file) as image:
        mode, (width, height), turned = image.mode, image.size, 1
        with suppress(Exception):  # of any kind; damaged EXIF is no reason to refuse good pixels
            # Not by the method of PNG images, which decodes them in search of EXIF behind them.
            turned = pillow().Image.getexif(image).get(_ORIENTATION, 1)
        # Pillow gives the size of a TIFF image as it will be once upright.
        if image.format != "TIFF" and turned in (5, 6, 7, 8):
            width, height = height, width
        grey = mode in _GREY or mode.startswith("I")
        values = _values(image, file) if measure and _is_deep(mode) else None
        return Look(width, height, _READ_AS.get(mode, mode), grey, values)


def read_image(
    file: Path,
    mode: str = "RGB",
    *,
    values: Values | None = None,
    least: int | None = None,
    content: BinaryIO | None = None,
) -> Any:
    """An image file as an upright image of Pillow, of mode "L" or "RGB", white where transparent.

    An image of 16 or 32 bits is scaled by `values`, or by those in use in it alone. With `least`
    pixels a side that are enough, a large JPEG image is decoded at a fraction of its size, which is
    many times as fast. `content` is what the file holds, if that is not on the disk.
    """
    with _opened(file, content) as image:
        if least is not None:
            image.draft(None, (least, least))
        image.load()  # which turns a TIFF image
        with suppress(Exception):  # as in `look`
            image = pillow("ImageOps").exif_transpose(image)
        if _is_deep(image.mode):
            low, high = values or _values(image, file)
            shares = (np.asarray(image).astype(np.float32) - low) / (high - low)
            image = pillow().fromarray((255 * shares.clip(0, 1)).round().astype(np.uint8))
        if image.has_transparency_data:
            white = pillow().new("RGBA", image.size, "white")
            image = pillow().alpha_composite(white, image.convert("RGBA"))
        return image.convert(mode)


def pillow(module: str = "Image") -> Any:
    """A module of Pillow, or a sentence on how to install it."""
    return require(f"PIL.{module}", "images", "reading images")


@contextmanager
def _opened(file: Path, content: BinaryIO | None = None) -> Iterator[Any]:
    """An image of which only the header has been read, after a look at what it would unpack to."""
    advice = f"repair or remove it, or leave it out by {_SKIP}" if content is None else "repair it"
    # Not by its name: Pillow would map the file, and mix up the pixels of a turned TIFF.
    with (
        readable(file, "image", advice),
        content or file.open("rb") as stream,
        pillow().open(stream, formats=_FORMATS) as image,
    ):
        check_bytes(str(file), 3 * image.width * image.height)
        most = pillow().MAX_IMAGE_PIXELS
        if most is not None and image.width * image.height > most:
            raise DataError(
                f"{file} has more pixels than Pillow's limit of {most}; make it smaller."
            )
        yield image


def _is_deep(mode: str) -> bool:
    """Whether Pillow has an image in 16 or 32 bits, which it would clip to 8, not scale."""
    return mode.startswith("I") or mode == "F"


def _values(image: Any, file: Path) -> Values:
    """From 0, or the least value below it, to the greatest value of a deep image."""
    pixels = np.asarray(image)
    if not np.isfinite(pixels).all():
        raise DataError(f"{file} has values that are no finite numbers; repair or remove it.")
    low, high = min(0, pixels.min().item()), pixels.max().item()
    return low, high if high > low else low + 1
