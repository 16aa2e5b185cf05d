"""One image file as pixels: upright, in 8 bits, grey or RGB, whatever its format and mode.

Files may be hostile: what one would unpack to is known from its header before it is decoded, and
Pillow's formats that start other programs are not opened. Images of 16 and 32 bits are scaled to 8
by one range of values for all of them, so that dark ones stay dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from kscn.data.limits import check_bytes, readable
from kscn.errors import DataError
from kscn.extras import require

# The values that become black and white.
Values = tuple[float, float]

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
# How many bits of a deeper file instruments fill, beside any number of more than 16.
_BITS = (8, 10, 12, 14, *range(16, 33))


class Look(NamedTuple):
    """What the header of an image tells."""

    file: Path
    width: int  # pixels, once upright
    height: int
    mode: str  # of Pillow
    # The least and the greatest value, if that was asked for and there are more than 8 bits. Of
    # colours of 16 bits, Pillow has only the upper 8.
    extent: Values | None = None

    def __str__(self) -> str:
        return f"{self.width} x {self.height} {self.read_as or self.mode}"

    @property
    def read_as(self) -> str | None:
        """L or RGB, if the image is that without losing depth, transparency or colour."""
        return _READ_AS.get(self.mode)

    @property
    def grey(self) -> bool:
        """Whether it has no colours."""
        return self.read_as == "L" or self.mode in _GREY or self.mode.startswith("I")


def look(file: Path, measure: bool = False) -> Look:
    """Size and mode of an image file; to measure the values in use, only deep ones are decoded."""
    with _opened(file) as image:
        width, height = image.size
        # Pillow gives the size of a TIFF image as it will be once upright.
        if image.format != "TIFF" and _orientation(image) >= 5:
            width, height = height, width
        return Look(file, width, height, image.mode, _extent(file, image) if measure else None)


def read_rgb(
    file: Path,
    values: Values | None = None,
    least: int | None = None,
    content: BinaryIO | None = None,
) -> Any:
    """An image file at its own size, as an upright RGB image of Pillow, on white.

    An image of 16 or 32 bits is scaled by `values`, or by a range that is found for it alone. With
    `least` pixels a side that are enough, a large JPEG image is decoded at a fraction of its size,
    which is many times as fast. `content` is what the file holds, if that is not on the disk.
    """
    with _opened(file, content) as image:
        if least is not None:
            image.draft(None, (least, least))
        if values is None and _is_deep(image.mode):
            values = value_range([Look(file, 0, 0, image.mode, _extent(file, image))])
        return _solid(image, "RGB", values)


def read_square(
    file: Path, size: int, mode: str, values: Values | None, content: BinaryIO | None = None
) -> Any:
    """The middle of an image file as `size` x `size` pixels; the longer side is cut at both ends.

    `mode` is "L" or "RGB"; for the rest see `read_rgb`.
    """
    fit, method = _pillow("ImageOps").fit, _pillow().Resampling.LANCZOS
    with _opened(file, content) as image:
        image.draft(None, (2 * size, 2 * size))
        whole = _solid(image, mode, values)
        return fit(whole, (size, size), method=method)


def read_plain(file: Path, mode: str) -> np.ndarray:
    """The pixels of an image whose mode is read as "L" or "RGB", at its own size."""
    with _opened(file) as image:
        return np.asarray(_upright(image).convert(mode))


def value_range(looks: Iterable[Look]) -> Values | None:
    """The values that become black and white in all these images, None if all have 8 bits.

    From 0 to the most that 8, 10, 12, 14, 16 or more bits hold, the first that suffices; in
    fractions from 0 to 1 or 255; where there are values below 0, from the least to the greatest.
    """
    extents = {seen: seen.extent for seen in looks if seen.extent is not None}
    colours = {seen: high for seen, (_, high) in extents.items() if not _is_deep(seen.mode)}
    # Pillow reads the upper 8 of 16 bits of a colour: of 12 bits in a file of 16, 4 remain.
    if colours and max(colours.values()) < 64:
        raise DataError(
            f"{list(colours)[-1].file} has colours of 16 bits of which only the lower ones are in "
            "use; convert such images to 8 bits a colour before."
        )
    deep = [seen for seen in extents if seen not in colours]
    if not deep:
        return None
    fractions = deep[0].mode == "F"
    for seen in deep:
        if (seen.mode == "F") != fractions:
            raise DataError(
                f"{seen.file} and {deep[0].file} hold whole numbers and fractions; put them into "
                "folders of their own."
            )
    low, high = min(extents[seen][0] for seen in deep), max(extents[seen][1] for seen in deep)
    if low < 0 or (fractions and high > 255):
        return low, max(high, low + 1)
    if fractions:
        return 0, 1 if high <= 1 else 255
    return 0, 2 ** next(bits for bits in _BITS if bits >= int(high).bit_length()) - 1


def _pillow(module: str = "Image") -> Any:
    return require(f"PIL.{module}", "images", "reading images")


@contextmanager
def _opened(file: Path, content: BinaryIO | None = None) -> Iterator[Any]:
    """An image of which only the header has been read, after a look at what it would unpack to."""
    pillow = _pillow()
    with readable(file, "image", "repair or remove it"), ExitStack() as stack:
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


def _is_deep(mode: str) -> bool:
    """Whether Pillow has an image in 16 or 32 bits, which it would clip to 8, not scale."""
    return mode.startswith("I") or mode == "F"


def _extent(file: Path, image: Any) -> Values | None:
    """The least and the greatest value of an open image, None if it has 8 bits."""
    deep = _is_deep(image.mode)
    if not (deep or ";16" in str(image.tile)):
        return None
    pixels = np.asarray(image if deep else image.convert("RGB"))
    if not np.isfinite(pixels).all():
        raise DataError(f"{file} has values that are no finite numbers; repair or remove it.")
    return pixels.min().item(), pixels.max().item()


def _solid(image: Any, mode: str, values: Values | None) -> Any:
    """An open image, upright, of 8 bits, on white where it is transparent."""
    pillow = _pillow()
    whole = _upright(image)
    if values is not None and _is_deep(whole.mode):
        low, high = values
        shares = (np.asarray(whole).astype(np.float32) - low) / (high - low)
        whole = pillow.fromarray((255 * shares.clip(0, 1)).round().astype(np.uint8))
    if whole.has_transparency_data:
        white = pillow.new("RGBA", whole.size, "white")
        whole = pillow.alpha_composite(white, whole.convert("RGBA"))
    return whole.convert(mode)


def _upright(image: Any) -> Any:
    """An open image, decoded, as its camera was held."""
    image.load()  # which turns a TIFF image
    turn = _TURNS.get(_orientation(image))
    return image if turn is None else image.transpose(_pillow().Transpose[turn])


def _orientation(image: Any) -> int:
    """What EXIF says about an image, 1 (upright) if it says nothing that can be understood."""
    try:
        # Not by the method of PNG images, which decodes them in search of EXIF behind the pixels.
        found = _pillow().Image.getexif(image).get(_ORIENTATION)
    except Exception:  # of any kind; damaged EXIF is no reason to refuse good pixels
        return 1
    return found if found in _TURNS else 1
