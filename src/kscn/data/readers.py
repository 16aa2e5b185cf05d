"""Open a file or folder as a data set, by its suffix: read-only, lazily where the format allows.

What a header claims is checked against the size of the file before anything is allocated, and
nothing is ever unpickled.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from kscn.data.arrays import ArraySource, MappedSource
from kscn.data.base import check_dtype, check_shape
from kscn.data.dataset import MAX_DEFLATE_RATIO, Dataset, make_dataset, reason, require
from kscn.data.idx import is_idx_name, open_idx
from kscn.data.images import open_image_folder
from kscn.data.source import SlicedSource
from kscn.data.tables import open_csv, open_parquet
from kscn.errors import DataError, InputError, KscnError

_SAMPLE_NAMES = ("X", "samples", "data", "images", "x_train")
_LABEL_NAMES = ("y", "labels", "targets", "label", "target", "y_train")


def open_path(path: str | Path) -> Dataset:
    """Open a file or folder of samples.

    Parameters
    ----------
    path : str or Path
        A .npy, .npz, .csv, .parquet, .h5 or idx (also .gz) file, or a folder of images.

    Raises
    ------
    DataError
        If the path does not exist, is damaged, is not what its name says, or holds no samples.
    """
    path = Path(path).expanduser()
    try:
        if path.is_dir():
            return open_image_folder(path)
        if not path.exists():
            raise DataError(f"{path} does not exist; check the path.")
        return _reader(path)(path)
    except InputError as error:
        raise DataError(str(error)) from error
    except OSError as error:
        why = error.strerror or reason(error)
        raise DataError(f"{path} cannot be read ({why}); check the file.") from error


def _reader(path: Path) -> Callable[[Path], Dataset]:
    if path.stat().st_size == 0:
        raise DataError(f"{path} is an empty file; write the samples again.")
    if is_idx_name(path):
        return open_idx
    readers = {
        ".npy": _open_npy,
        ".npz": _open_npz,
        ".csv": open_csv,
        ".parquet": open_parquet,
        ".h5": _open_h5,
        ".hdf5": _open_h5,
    }
    try:
        return readers[path.suffix.lower()]
    except KeyError:
        raise DataError(
            f"{path} has a suffix that is not understood; use {', '.join(readers)}, an idx file "
            "or a folder of images."
        ) from None


def _open_npy(path: Path) -> Dataset:
    with path.open("rb") as stream:
        shape, fortran, dtype = _npy_header(stream, str(path))
        offset = stream.tell()
    check_shape(str(path), shape)
    check_dtype(str(path), dtype)  # before mapping: objects in a map would be wild pointers
    promised = math.prod(shape) * dtype.itemsize
    found = path.stat().st_size - offset
    if found < promised:
        raise DataError(
            f"{path} is truncated: its header promises {promised} bytes of values, the file has "
            f"{found}; write the file again."
        )
    mapping: np.memmap = np.memmap(
        path, dtype=dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C"
    )
    return make_dataset(MappedSource(mapping, mapping, str(path)), None, path.stem)


def _npy_header(stream: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type in the header of a .npy stream, which is left at the first value."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        shape, fortran, dtype = readers[np.lib.format.read_magic(stream)](stream)
    # numpy parses the header as Python text, which can fail in every way that Python has.
    except Exception as error:
        raise DataError(
            f"{what} is not a NumPy array file (unreadable header); check what it holds."
        ) from error
    if any(length < 0 for length in shape):
        raise DataError(f"{what} has a damaged header (shape {shape}); write the file again.")
    return shape, fortran, dtype


def _open_npz(path: Path) -> Dataset:
    try:
        with zipfile.ZipFile(path) as archive:
            files = [name for name in archive.namelist() if name.endswith(".npy")]
            samples, labels = _choose([file.removesuffix(".npy") for file in files], path)
            array = _read_member(archive, samples, path)
            source = ArraySource(array, str(path))
            given = None if labels is None else _read_member(archive, labels, path)
    # A damaged archive shows itself in many ways: bad structure, bad sizes, bad checksums.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise DataError(
            f"{path} is no readable .npz file ({reason(error)}); write it again."
        ) from error
    return make_dataset(source, given, path.stem)


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    """One array of an archive, read once header, archive and file agree on its size."""
    what = f"array {name!r} in {path}"
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as stream:
        shape, _, dtype = _npy_header(stream, what)
        size = math.prod(shape) * dtype.itemsize
        stored = min(info.compress_size, path.stat().st_size)
        if size != info.file_size - stream.tell() or size > stored * MAX_DEFLATE_RATIO:
            raise DataError(
                f"The {what} promises {size} bytes, which is not what the file holds; write it "
                "again."
            )
    if dtype.hasobject:
        check_dtype(what, dtype)
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _open_h5(path: Path) -> Dataset:
    h5py = require("h5py", "h5", ".h5 files")
    if not h5py.is_hdf5(path):
        raise DataError(f"{path} is not an HDF5 file; check what it holds.")
    names: list[str] = []
    try:
        file = h5py.File(path, "r")  # stays open as long as the lazy samples live
        file.visititems(
            lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
        )
        samples, labels = _choose(names, path)
        source = SlicedSource(file[samples], str(path))
        if labels is None:
            return make_dataset(source, None, path.stem)
        if file[labels].nbytes > path.stat().st_size * MAX_DEFLATE_RATIO:
            raise DataError(f"{path} promises more labels than it can hold; write the file again.")
        return make_dataset(source, file[labels][()], path.stem)
    # h5py passes faults of the file on as the error of whatever Python operation met them.
    except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, KscnError):
            raise
        raise DataError(
            f"{path} is no readable .h5 file ({reason(error)}); write it again."
        ) from error


def _choose(names: list[str], path: Path) -> tuple[str, str | None]:
    """Which arrays of a file are the samples and the labels, by name or by being alone."""
    labels = next((name for name in _LABEL_NAMES if name in names), None)
    samples = next((name for name in _SAMPLE_NAMES if name in names), None)
    if samples is None:
        others = [name for name in names if name != labels] or names
        if len(others) != 1:
            found = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise DataError(
                f"{path} does not say which array holds the samples (found: {found or 'none'}); "
                "name it X."
            )
        samples = others[0]
    return samples, labels if labels != samples else None
