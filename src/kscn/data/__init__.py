"""Samples come in: files, named data sets, arrays and synthetic unions of subspaces."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from kscn.data.base import Source
from kscn.data.dataset import Dataset
from kscn.data.files import open_path
from kscn.data.images import ImageSource, Preparation, open_image_folder
from kscn.data.named import NAMES, Progress
from kscn.data.named import load as _load_named
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
    preparation: Preparation | None = None,
    names: Sequence[str] | None = None,
) -> Dataset:
    """Load a named data set or open a file or folder.

    Parameters
    ----------
    name_or_path : str or Path
        A name from `kscn data list` (digits, mnist, fashion-mnist, ...), or a path: .npy, .npz,
        idx, .csv, .parquet, .h5, a folder of .npy or .parquet files (one after the other in the
        order of their names), or a folder of images. A folder called like a data set is reached by
        writing it as a path, ./mnist.
    progress : callable, optional
        Called as ``progress(file, done_bytes, total_bytes)`` while a data set is fetched.
    size : int, optional
        Bring the images of a folder, of any size and mode, to so many pixels a side. The longer
        side is cut at both ends; grey images stay grey if all of them are.
    any_size : bool
        Open a folder of images for an encoder, which takes `samples.file(row)` or
        `samples.original(row)` at their own sizes; as samples they are RGB of `size` pixels a
        side, 96 by default, and are decoded when they are read. Other data is opened as always.
    skip_broken : bool
        Leave out images that cannot be read; `samples.left_out` tells which and why.
    preparation : Preparation, optional
        Bring the images of a folder to the size and range of those of an earlier fit, by its
        `samples.preparation`. Other data is opened as always.
    names : sequence of str, optional
        The images to take from a folder, as `samples.names` of an earlier fit has them, instead of
        all.

    Returns
    -------
    Dataset
        With `samples`, `labels` (or None) and `name`.

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
    if side is not None:
        preparation = Preparation(side, grey=False if any_size else None)
    found = _open(
        name_or_path,
        progress,
        partial(
            open_image_folder,
            preparation=preparation,
            names=names,
            decode=size is not None and not any_size,
            skip_broken=skip_broken,
        ),
    )
    if (size is not None or skip_broken) and not isinstance(found.samples, ImageSource):
        raise DataError(
            f"{name_or_path} is no folder of images, and only those are brought to one size or may "
            "have broken files; leave out --size and --skip-broken, in Python size and skip_broken."
        )
    return found


def _open(
    name_or_path: str | Path, progress: Progress | None, open_images: Callable[[Path], Dataset]
) -> Dataset:
    if isinstance(name_or_path, str) and name_or_path in NAMES:
        return _load_named(name_or_path, progress)
    return open_path(name_or_path, open_images)
