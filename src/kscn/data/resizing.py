"""Images of any size and mode as a folder of images of one size, which can be clustered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from kscn.data.decoding import Values, look, read_square, value_range
from kscn.data.images import Preparation, find_images
from kscn.data.limits import as_path
from kscn.errors import DataError


class Resized(NamedTuple):
    """How many images were written, and the values that became black and white in deep ones."""

    images: int
    values: Values | None


def resize_images(
    folder: str | Path,
    output: str | Path,
    size: int,
    grey: bool = False,
    values: Values | None = None,
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
    wanted = Preparation(size, grey, values)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give one that holds image files.")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise DataError(f"{output} exists and is not empty; give a new folder.")
    files = find_images(folder)
    if output.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{output} lies inside {folder}; give a folder outside of it.")
    found = value_range(look(file, measure=True) for file in files)
    values = None if found is None else values or found
    for file in files:
        target = output / file.relative_to(folder).with_name(f"{file.name}.png")
        target.parent.mkdir(parents=True, exist_ok=True)
        # Only whole images have the final name, whenever this is interrupted.
        part = target.with_name(f".{target.name}.part")
        read_square(file, size, wanted.mode, values).save(part, format="PNG")
        os.replace(part, target)
    return Resized(len(files), values)
