"""Images of any size and mode as a folder of images of one size, which can be clustered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kscn.data.dataset import require
from kscn.data.images import broken, images_below, open_image
from kscn.errors import DataError

# More would take hours to cluster and gigabytes to hold, and shapes are told apart with less.
MOST_PIXELS = 1024


def resize_images(folder: Path, output: Path, size: int, grey: bool = False) -> int:
    """Write every image of a folder as a square PNG file of one size; returns how many.

    Parameters
    ----------
    folder : Path
        Images in it or in folders below it, of any size and mode.
    output : Path
        A folder that is new or empty; it gets the same sub-folders and names. An image that was
        not square is cut at both ends of its longer side.
    size : int
        Pixels a side.
    grey : bool
        Write grey images instead of coloured ones.
    """
    if not 1 <= size <= MOST_PIXELS:
        raise DataError(
            f"images of {size} pixels a side cannot be written; give 1 to {MOST_PIXELS}."
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
    for file in files:
        target = output / file.relative_to(folder).with_name(f"{file.name}.png")
        target.parent.mkdir(parents=True, exist_ok=True)
        # Only whole images have the final name, whenever this is interrupted.
        part = target.with_name(f".{target.name}.part")
        _squared(file, size, "L" if grey else "RGB").save(part, format="PNG")
        os.replace(part, target)
    return len(files)


def _squared(file: Path, size: int, mode: str) -> Any:
    """One image, upright, without transparency, its middle at the size that is wanted."""
    pillow, ops = (
        require("PIL.Image", "images", "images"),
        require("PIL.ImageOps", "images", "images"),
    )
    with open_image(file) as image:
        try:
            upright = ops.exif_transpose(image)
            if upright.mode.startswith("I;16"):  # Pillow would clip, not scale
                upright = upright.point(lambda value: value / 256).convert("L")
            if upright.has_transparency_data:
                solid = pillow.new("RGBA", upright.size, "white")
                upright = pillow.alpha_composite(solid, upright.convert("RGBA"))
            return ops.fit(upright.convert(mode), (size, size), method=pillow.Resampling.LANCZOS)
        except Exception as error:  # see `open_image`
            raise broken(file, error) from error
