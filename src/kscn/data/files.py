"""Open a file or folder as a data set, by its suffix: read-only, lazily where the format allows.

Files may be hostile. What a header claims is checked against the size of the file before anything
is allocated, nothing is ever unpickled or executed, pipes and devices are not opened, and what a
packed file may unpack to is limited: to 4 GiB, or the environment variable KSCN_MAX_BYTES.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from kscn.data.arrayfiles import (
    is_idx_name,
    map_npy,
    npy_source,
    open_h5,
    open_idx,
    open_npy,
    open_npz,
)
from kscn.data.dataset import LABEL_NAMES, Dataset, make_dataset
from kscn.data.images import is_image_name, open_image_folder
from kscn.data.limits import check_regular
from kscn.data.named import NAMES
from kscn.data.parts import chained
from kscn.data.tables import open_csv, open_parquet, parquet_labels, parquet_source
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
    if path == "":  # which `Path` takes for the current folder
        raise DataError("The path is empty; give a file or folder.")
    path = Path(path).expanduser()
    try:
        if path.is_dir():
            return _open_folder(path, open_images)
        if not path.exists():
            raise DataError(
                f"{path} does not exist; give a file, a folder or a known data set: "
                f"{', '.join(NAMES)}."
            )
        check_regular(path)
        return open_images(path) if is_image_name(path) else _open_file(path)
    except InputError as error:
        raise DataError(str(error)) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({reason(error)}); check the file.") from error


def _open_file(path: Path) -> Dataset:
    reader = open_idx if is_idx_name(path) else READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path} has a suffix that is not understood; use {', '.join(READERS)}, an idx file, "
            "an image, or a folder of images, .npy or .parquet files."
        )
    return reader(path)


def _open_folder(folder: Path, open_images: Callable[[Path], Dataset]) -> Dataset:
    """A folder of images; or of .npy or .parquet files, in the order of their names."""
    files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    arrays = [file for file in files if file.suffix.lower() == ".npy"]
    # The labels of all samples in .npy files, which may well lie beside images.
    given = [file for file in arrays if file.stem.lower() in LABEL_NAMES]
    arrays = [file for file in arrays if file not in given]
    tables = [file for file in files if file.suffix.lower() == ".parquet"]
    images = [file for file in files if is_image_name(file)]
    shards = arrays or tables
    if not shards:
        return open_images(folder)
    if other := images or (tables if arrays else []):
        raise DataError(
            f"{folder} has both {other[0].name} and {shards[0].name}; keep samples of one kind in "
            "a folder."
        )
    for file in [*shards, *given]:
        check_regular(file)
    if arrays:
        source = chained(npy_source, shards, str(folder))
        labels = [np.array(map_npy(file)) for file in given[:1]]
    else:
        source = chained(parquet_source, shards, str(folder))
        labels = [some for file in shards if (some := parquet_labels(file)) is not None]
        if labels and len(labels) < len(shards):
            raise DataError(
                f"Only {len(labels)} of the {len(shards)} files in {folder} have labels; give all "
                "of them a label column, or none."
            )
    return make_dataset(source, np.concatenate(labels) if labels else None, folder.resolve().name)
