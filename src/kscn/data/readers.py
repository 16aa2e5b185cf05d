"""Open a file or folder as a data set, by its suffix: read-only, lazily where the format allows.

Files may be hostile. What a header claims is checked against the size of the file before anything
is allocated, nothing is ever unpickled or executed, pipes and devices are not opened, and what a
packed file may unpack to is limited: to 4 GiB, or the environment variable KSCN_MAX_BYTES.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kscn.data.dataset import Dataset
from kscn.data.hdf5 import open_h5
from kscn.data.idx import is_idx_name, open_idx
from kscn.data.images import is_image_name, open_image_folder
from kscn.data.limits import as_path, check_regular
from kscn.data.numpyfiles import open_npy, open_npz
from kscn.data.parquet import open_parquet
from kscn.data.shards import is_samples, is_shard, open_shards
from kscn.data.tables import open_csv
from kscn.errors import DataError, InputError, reason

# How files are opened, by their suffix; programs may add formats of their own.
READERS: dict[str, Callable[[Path], Dataset]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".csv": open_csv,
    ".parquet": open_parquet,
    ".h5": open_h5,
    ".hdf5": open_h5,
}


def open_path(
    path: str | Path, open_images: Callable[[Path], Dataset] = open_image_folder
) -> Dataset:
    """Open a file or folder of samples; `open_images` opens a folder of images, or a single one."""
    path = as_path(path)
    try:
        if path.is_dir():
            return _open_folder(path, open_images)
        if not path.exists():
            raise DataError(f"{path} does not exist; check the path.")
        check_regular(path)
        return open_images(path) if is_image_name(path) else _open_file(path)
    except InputError as error:
        raise DataError(str(error)) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({reason(error)}); check the file.") from error


def _open_folder(folder: Path, open_images: Callable[[Path], Dataset]) -> Dataset:
    files = list(folder.iterdir())
    shards = [file for file in files if is_shard(file)]
    if not any(is_samples(file) for file in shards):  # labels.npy may well lie beside images
        return open_images(folder)
    image = next((file for file in files if is_image_name(file)), None)
    if image is not None:
        raise DataError(
            f"{folder} has both {image.name} and {shards[0].name}; keep images and arrays in "
            "folders of their own."
        )
    return open_shards(folder, shards)


def _open_file(path: Path) -> Dataset:
    if path.stat().st_size == 0:
        raise DataError(f"{path} is an empty file; write the samples again.")
    reader = open_idx if is_idx_name(path) else READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path} has a suffix that is not understood; use {', '.join(READERS)}, an idx file, "
            "an image, or a folder of images, .npy or .parquet files."
        )
    return reader(path)
