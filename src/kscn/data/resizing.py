"""Images of any size and mode as a folder of images of one size, which can be clustered."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kscn.data.dataset import require
from kscn.data.images import broken, images_below, open_image, upright
from kscn.data.limits import as_path
from kscn.errors import DataError

# More would take hours to cluster and gigabytes to hold, and shapes are told apart with less.
MOST_PIXELS = 1024
# How many bits of a deeper file instruments fill, beside any number of more than 16.
_BITS = (8, 10, 12, 14, *range(16, 33))


class Resized(NamedTuple):
    """What `resize_images` did.

    Attributes
    ----------
    images : int
        How many were written.
    values : tuple of float, or None
        The values that became black and white, if any image had more than 8 bits.
    """

    images: int
    values: tuple[float, float] | None


def resize_images(
    folder: str | Path,
    output: str | Path,
    size: int,
    grey: bool = False,
    values: tuple[float, float] | None = None,
) -> Resized:
    """Write every image of a folder as a square PNG file of one size.

    Parameters
    ----------
    folder : str or Path
        Images in it or in folders below it, of any size and mode.
    output : str or Path
        A folder that is new or empty; it gets the same sub-folders and names. An image that was
        not square is cut at both ends of its longer side.
    size : int
        Pixels a side.
    grey : bool
        Write grey images instead of coloured ones.
    values : tuple of float, optional
        The values that become black and white in images of 16 or 32 bits. By default one range for
        all of them: from 0 to the most that 8, 10, 12, 14, 16 or more bits hold, the first that
        suffices; in fractions from 0 to 1 or 255; otherwise from the least to the greatest value.
    """
    folder, output = as_path(folder), as_path(output)
    if not 1 <= size <= MOST_PIXELS:
        raise DataError(
            f"images of {size} pixels a side cannot be written; give 1 to {MOST_PIXELS}."
        )
    if values is not None and not (math.isfinite(values[1] - values[0]) and values[0] < values[1]):
        raise DataError(
            f"a range from {values[0]} to {values[1]} cannot be used; give the lower value first."
        )
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give one that holds image files.")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise DataError(f"{output} exists and is not empty; give a new folder.")
    files = sorted(images_below(folder))
    if not files:
        raise DataError(f"{folder} is a folder without images; give one that holds image files.")
    if output.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{output} lies inside {folder}; give a folder outside of it.")
    found = _value_range(files)
    values = None if found is None else values or found
    for file in files:
        target = output / file.relative_to(folder).with_name(f"{file.name}.png")
        target.parent.mkdir(parents=True, exist_ok=True)
        # Only whole images have the final name, whenever this is interrupted.
        part = target.with_name(f".{target.name}.part")
        _squared(file, size, "L" if grey else "RGB", values).save(part, format="PNG")
        os.replace(part, target)
    return Resized(len(files), values)


def _value_range(files: list[Path]) -> tuple[float, float] | None:
    """The range of all images of more than 8 bits, None if there are none.

    One for all, so that a dark image stays darker than a bright one.
    """
    low, high, first = math.inf, -math.inf, None
    halved, brightest = None, 0
    for file in files:
        with open_image(file) as image:
            deep, colour = _is_deep(image), ";16" in str(image.tile)
            if not (deep or colour):
                continue
            try:
                pixels = np.asarray(image if deep else image.convert("RGB"))
            except Exception as error:  # see `open_image`
                raise broken(file, error) from error
        if not deep:
            halved, brightest = file, max(brightest, int(pixels.max()))
            continue
        if not np.isfinite(pixels).all():
            raise DataError(f"{file} has values that are no finite numbers; repair or remove it.")
        first = first or (file, pixels.dtype.kind)
        if (first[1] == "f") != (pixels.dtype.kind == "f"):
            raise DataError(
                f"{file} and {first[0]} hold whole numbers and fractions; put them into folders of "
                "their own."
            )
        low, high = min(low, pixels.min().item()), max(high, pixels.max().item())
    # Pillow reads the upper 8 of 16 bits of a colour: of 12 bits in a file of 16, 4 remain.
    if halved is not None and brightest < 64:
        raise DataError(
            f"{halved} has colours of 16 bits of which only the lower ones are in use; convert "
            "such images to 8 bits a colour before."
        )
    if first is None:
        return None
    if low < 0 or (first[1] == "f" and high > 255):
        return low, max(high, low + 1)
    if first[1] == "f":
        return 0, 1 if high <= 1 else 255
    return 0, 2 ** next(bits for bits in _BITS if bits >= int(high).bit_length()) - 1


def _is_deep(image: Any) -> bool:
    """Whether Pillow has an image in 16 or 32 bits, which it would clip to 8, not scale."""
    return image.mode.startswith("I") or image.mode == "F"


def _squared(file: Path, size: int, mode: str, values: tuple[float, float] | None) -> Any:
    """One image, upright, without transparency, its middle at the size that is wanted."""
    pillow, ops = (
        require("PIL.Image", "images", "images"),
        require("PIL.ImageOps", "images", "images"),
    )
    with open_image(file) as image:
        try:
            whole = upright(image)
            if values is not None and _is_deep(whole):
                low, high = values
                shares = (np.asarray(whole, dtype=np.float32) - low) / (high - low)
                whole = pillow.fromarray((255 * shares.clip(0, 1)).round().astype(np.uint8))
            if whole.has_transparency_data:
                solid = pillow.new("RGBA", whole.size, "white")
                whole = pillow.alpha_composite(solid, whole.convert("RGBA"))
            return ops.fit(whole.convert(mode), (size, size), method=pillow.Resampling.LANCZOS)
        except Exception as error:  # see `open_image`
            raise broken(file, error) from error
