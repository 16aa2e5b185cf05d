"""Images of 16 and 32 bits in 8: one range of values for all, so that dark ones stay dark."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kscn.errors import DataError

# How many bits of a deeper file instruments fill, beside any number of more than 16.
_BITS = (8, 10, 12, 14, *range(16, 33))

# The values that become black and white.
Values = tuple[float, float]


class Extent(NamedTuple):
    """The values in use in one image of more than 8 bits.

    Attributes
    ----------
    file : Path
        The image.
    kind : str
        "f" for fractions, "i" or "u" for whole numbers, "" for colours, of which Pillow has only
        the upper 8 bits.
    low, high : float
        The least and the greatest value.
    """

    file: Path
    kind: str
    low: float
    high: float


def is_deep(image: Any) -> bool:
    """Whether Pillow has an image in 16 or 32 bits, which it would clip to 8, not scale."""
    return bool(image.mode.startswith("I") or image.mode == "F")


def extent(file: Path, image: Any) -> Extent | None:
    """The values in use in an open image, None if it has 8 bits."""
    deep = is_deep(image)
    if not (deep or ";16" in str(image.tile)):
        return None
    pixels = np.asarray(image if deep else image.convert("RGB"))
    if not np.isfinite(pixels).all():
        raise DataError(f"{file} has values that are no finite numbers; repair or remove it.")
    kind = pixels.dtype.kind if deep else ""
    return Extent(file, kind, pixels.min().item(), pixels.max().item())


def value_range(extents: Iterable[Extent]) -> Values | None:
    """The values that become black and white in all these images, None if all have 8 bits.

    From 0 to the most that 8, 10, 12, 14, 16 or more bits hold, the first that suffices; in
    fractions from 0 to 1 or 255; where there are values below 0, from the least to the greatest.
    """
    found = list(extents)
    halved = [extent for extent in found if not extent.kind]
    # Pillow reads the upper 8 of 16 bits of a colour: of 12 bits in a file of 16, 4 remain.
    if halved and max(extent.high for extent in halved) < 64:
        raise DataError(
            f"{halved[-1].file} has colours of 16 bits of which only the lower ones are in use; "
            "convert such images to 8 bits a colour before."
        )
    deep = [extent for extent in found if extent.kind]
    if not deep:
        return None
    fractions = deep[0].kind == "f"
    for extent in deep:
        if (extent.kind == "f") != fractions:
            raise DataError(
                f"{extent.file} and {deep[0].file} hold whole numbers and fractions; put them into "
                "folders of their own."
            )
    low, high = min(extent.low for extent in deep), max(extent.high for extent in deep)
    if low < 0 or (fractions and high > 255):
        return low, max(high, low + 1)
    if fractions:
        return 0, 1 if high <= 1 else 255
    return 0, 2 ** next(bits for bits in _BITS if bits >= int(high).bit_length()) - 1


def check_values(values: Values) -> None:
    """Refuse a range that is empty or has no end."""
    low, high = values
    if not (math.isfinite(high - low) and low < high):
        raise DataError(f"a range from {low} to {high} cannot be used; give the lower value first.")


def to_8_bits(pixels: np.ndarray, values: Values) -> np.ndarray:
    """Pixels between 0 and 255; what lies outside of the range is clipped."""
    low, high = values
    shares = (pixels.astype(np.float32) - low) / (high - low)
    return (255 * shares.clip(0, 1)).round().astype(np.uint8)
