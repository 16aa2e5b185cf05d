"""One image file as pixels: upright, in 8 bits, grey or RGB, whatever its format and mode.

Files may be hostile: what one would unpack to is known from its header before it is decoded, and
Pillow's formats that start other programs are not opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from kscn.data.depth import Extent, Values, extent, is_deep, to_8_bits, value_range
from kscn.data.limits import check_bytes
from kscn.errors import DataError, reason
from kscn.extras import require

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Modes of Pillow that are read without loss, and as what; the grey ones among the others.
_READ_AS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}
_GREY = ("LA", "La", "F")
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


class Look(NamedTuple):
    """What the header of an image tells.

    Attributes
    ----------
    width, height : int
        Pixels a side, once upright.
    mode : str
        Pillow's mode.
    read_as : str or None
        "L" or "RGB" if the image is that without losing depth, transparency or colour.
    extent : Extent or None
        The values in use, if that was asked for and it has more than 8 bits.
    """

    width: int
    height: int
    mode: str
    read_as: str | None
    extent: Extent | None = None

    def __str__(self) -> str:
        return f"{self.width} x {self.height} {self.read_as or self.mode}"

    @property
    def grey(self) -> bool:
        """Whether it has no colours."""
        return self.read_as == "L" or self.mode in _GREY or self.mode.startswith("I")


def _pillow(module: str = "Image") -> Any:
    return require(f"PIL.{module}", "images", "reading images")


def look(file: Path, measure: bool = False) -> Look:
    """Size and mode of an image file; with the values in use, only deep images are decoded."""
    with open_image(file) as image:
        width, height = image.size
        # Pillow gives the size of a TIFF image as it will be once upright.
        if image.format != "TIFF" and _orientation(image) >= 5:
            width, height = height, width
        seen = Look(width, height, image.mode, _READ_AS.get(image.mode))
        if not measure:
            return seen
        with _faults(file):
            return seen._replace(extent=extent(file, image))


def read_rgb(
    file: Path,
    values: Values | None = None,
    least: int | None = None,
    content: BinaryIO | None = None,
) -> Any:
    """An image file at its own size, as an upright RGB image of Pillow.

    Parameters
    ----------
    file : Path
        BMP, GIF (its first frame), JPEG, PNG, PPM, TIFF or WebP, of any mode. What is transparent
        becomes white.
    values : tuple of float, optional
        The values that become black and white if it has 16 or 32 bits; by default a range that is
        found for this file alone.
    least : int, optional
        Pixels a side that are enough: a large JPEG image is decoded at a fraction of its size that
        has as many, which is many times as fast.
    content : stream, optional
        What the file holds, if it does not come from the disk.

    Raises
    ------
    DataError
        If the file cannot be decoded, or would unpack to more than is allowed.
    """
    with open_image(file, content) as image:
        if least is not None:
            image.draft(None, (least, least))
        if values is None and is_deep(image):
            with _faults(file):
                found = extent(file, image)
            values = None if found is None else value_range([found])
        return _solid(file, image, "RGB", values)


def read_square(
    file: Path, size: int, mode: str, values: Values | None, content: BinaryIO | None = None
) -> Any:
    """The middle of an image file as `size` x `size` pixels; the longer side is cut at both ends.

    Parameters
    ----------
    file : Path
        The image, or what to call it if there is `content`.
    size : int
        Pixels a side.
    mode : str
        "L" or "RGB".
    values : tuple of float, or None
        The values that become black and white if it has 16 or 32 bits.
    content : stream, optional
        What the file holds, if it does not come from the disk.
    """
    pillow, ops = _pillow(), _pillow("ImageOps")
    with open_image(file, content) as image:
        # A large JPEG image is decoded at a fraction of its size, which is many times as fast.
        image.draft(None, (2 * size, 2 * size))
        whole = _solid(file, image, mode, values)
        return ops.fit(whole, (size, size), method=pillow.Resampling.LANCZOS)


def read_plain(file: Path, mode: str) -> np.ndarray:
    """The pixels of an image whose mode is read as "L" or "RGB", at its own size."""
    with open_image(file) as image, _faults(file):
        return np.asarray(_upright(image).convert(mode))


def _solid(file: Path, image: Any, mode: str, values: Values | None) -> Any:
    """An open image, upright, of 8 bits, on white where it is transparent."""
    pillow = _pillow()
    with _faults(file):
        whole = _upright(image)
        if values is not None and is_deep(whole):
            whole = pillow.fromarray(to_8_bits(np.asarray(whole), values))
        if whole.has_transparency_data:
            white = pillow.new("RGBA", whole.size, "white")
            whole = pillow.alpha_composite(white, whole.convert("RGBA"))
        return whole.convert(mode)


def _upright(image: Any) -> Any:
    """An open image, decoded, as its camera was held."""
    image.load()  # which turns a TIFF image
    turn = _TURNS.get(_orientation(image))
    transpose = _pillow().Transpose
    return image if turn is None else image.transpose(transpose[turn])


def _orientation(image: Any) -> int:
    """What EXIF says about an image, 1 (upright) if it says nothing that can be understood."""
    general = _pillow().Image
    try:
        # That of PNG images would decode them in search of EXIF behind the pixels.
        found = general.getexif(image).get(_ORIENTATION)
    except Exception:  # see `_faults`; damaged EXIF is no reason to refuse good pixels
        return 1
    return found if found in _TURNS else 1


@contextmanager
def open_image(file: Path, content: BinaryIO | None = None) -> Iterator[Any]:
    """An image of which only the header has been read, after a look at what it would unpack to."""
    pillow = _pillow()
    with ExitStack() as stack:
        with _faults(file):
            # Not by its name: Pillow would map the file, and mix up the pixels of a turned TIFF.
            stream = content or stack.enter_context(file.open("rb"))
            image = stack.enter_context(pillow.open(stream, formats=_FORMATS))
        pixels = image.width * image.height
        check_bytes(str(file), 3 * pixels)
        if pillow.MAX_IMAGE_PIXELS is not None and pixels > pillow.MAX_IMAGE_PIXELS:
            raise DataError(
                f"{file} has {pixels} pixels, above Pillow's limit of {pillow.MAX_IMAGE_PIXELS}; "
                "make it smaller."
            )
        yield image


@contextmanager
def _faults(file: Path) -> Iterator[None]:
    """Say which file it is that cannot be decoded.

    Pillow passes faults of a file on as whatever the code for its format met.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        why = reason(error).split(" <_io.")[0]  # the name has been said
        raise DataError(f"{file} is not a readable image ({why}); repair or remove it.") from error
