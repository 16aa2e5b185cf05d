"""Samples come in: files, named data sets, arrays and synthetic unions of subspaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from kscn.data.base import Source
from kscn.data.catalog import NAMES, Progress
from kscn.data.catalog import load as _load_named
from kscn.data.dataset import Dataset
from kscn.data.images import ImageSource, Preparation, open_image_folder
from kscn.data.readers import open_path
from kscn.data.source import as_source
from kscn.data.synthetic import make_union_of_subspaces
from kscn.errors import DataError

__all__ = ["Dataset", "Source", "as_source", "load", "make_union_of_subspaces"]

# Pixels a side of what is shown of images that go to an encoder at their own size.
_SHOWN = 96


def load(
    name_or_path: str | Path,
    progress: Progress | None = None,
    *,
    size: int | None = None,
    any_size: bool = False,
    skip_broken: bool = False,
) -> Dataset:
    """Load a named data set or open a file or folder.

    Parameters
    ----------
    name_or_path : str or Path
        A name of the catalogue (digits, mnist, fashion-mnist, ...), or a path: .npy, .npz, idx,
        .csv, .parquet, .h5, a folder of .npy or .parquet files (one after the other in the order
        of their names), or a folder of images. A folder called like a data set is reached by
        writing it as a path, ./mnist.
    progress : callable, optional
        Called as ``progress(file, done_bytes, total_bytes)`` while a data set is fetched.
    size : int, optional
        Bring the images of a folder, of any size and mode, to so many pixels a side. The longer
        side is cut at both ends; grey images stay grey if all of them are.
    any_size : bool
        Open a folder of images for an encoder, which takes `samples.files` or
        `samples.original(row)` at their own sizes; as samples they are RGB of `size` pixels a
        side, 96 by default, and are decoded when they are read. Other data is opened as always.
    skip_broken : bool
        Leave out images that cannot be read; `samples.left_out` tells which and why.

    Returns
    -------
    Dataset
        With `samples`, `labels` (or None), `name` and `scale`.

    Notes
    -----
    Samples are read in batches when they are needed; those of .npz and .gz files, which allow no
    other way, are unpacked to memory. A file that would unpack to more than 4 GiB at once is
    refused; the environment variable KSCN_MAX_BYTES sets another limit. Data that is not there,
    or is damaged, foreign or hostile, raises a `DataError`.

    Examples
    --------
    >>> from kscn import data
    >>> digits = data.load("digits")
    >>> digits.samples.shape, len(digits.labels)
    ((8, 8), 1797)
    """
    side = _SHOWN if any_size and size is None else size
    open_images = partial(
        open_image_folder,
        preparation=None if side is None else Preparation(side, grey=False if any_size else None),
        decode=size is not None and not any_size,
        skip_broken=skip_broken,
    )
    found = _open(name_or_path, progress, open_images)
    if size is not None or skip_broken:
        _check_folder(found, name_or_path)
    return found


def _check_folder(found: Dataset, name_or_path: str | Path) -> None:
    """Refuse data that is no folder of images."""
    if not isinstance(found.samples, ImageSource):
        raise DataError(
            f"{name_or_path} is no folder of images, and only those are brought to one size or may "
            "have broken files; leave out --size and --skip-broken, in Python size and skip_broken."
        )


def load_like(
    name_or_path: str | Path,
    preparation: Preparation | None,
    *,
    names: Sequence[str] | None = None,
    skip_broken: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load data in the way in which that of an earlier fit was loaded.

    A folder of images is prepared as that was, by its `samples.preparation`; `names` are the files
    to take from it, instead of all of them. For the rest see `load`.
    """
    return _open(
        name_or_path,
        progress,
        partial(open_image_folder, preparation=preparation, names=names, skip_broken=skip_broken),
    )


def _open(
    name_or_path: str | Path, progress: Progress | None, open_images: Callable[[Path], Dataset]
) -> Dataset:
    if isinstance(name_or_path, str):
        if name_or_path in NAMES:
            return _load_named(name_or_path, progress)
        bare = not any(mark in name_or_path for mark in "./\\~")
        if bare and not Path(name_or_path).exists():
            raise DataError(
                f"{name_or_path!r} is neither a file nor a known data set; known ones are "
                f"{', '.join(NAMES)}."
            )
    return open_path(name_or_path, open_images)
