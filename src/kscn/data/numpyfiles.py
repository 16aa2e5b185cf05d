"""NumPy's own files: .npy, mapped, and .npz, whose arrays are read to memory. Never a pickle."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from kscn.data.arrays import ArraySource, MappedSource
from kscn.data.base import check_dtype
from kscn.data.dataset import Dataset, choose_arrays, make_dataset
from kscn.data.limits import MAX_DIMENSIONS, check_bytes, check_found, check_packed, readable
from kscn.errors import DataError

# numpy writes headers of some hundred bytes and refuses more than 10,000, but reads them first.
_HEADER_BYTES = 16_384
# zipfile reads a directory at once and makes an object of every entry; numpy's have a few.
_DIRECTORY_BYTES = 2**20


def open_npy(path: Path) -> Dataset:
    """Samples of a .npy file."""
    return make_dataset(npy_source(path), None, path.stem)


def npy_source(path: Path) -> MappedSource:
    """Samples of a .npy file, mapped: nothing is read yet."""
    return MappedSource(_map(path), str(path))


def read_npy(path: Path) -> np.ndarray:
    """The whole array of a .npy file, in memory; it may have any number of axes."""
    return np.array(_map(path))


def _map(path: Path) -> np.memmap:
    with path.open("rb") as stream:
        shape, fortran, dtype, offset = npy_header(stream, str(path))
    if dtype.hasobject:  # in a map these would be wild pointers
        check_dtype(str(path), dtype)
    check_found(path, math.prod(shape) * dtype.itemsize, path.stat().st_size - offset)
    return np.memmap(
        path, dtype=dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C"
    )


def npy_header(stream: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, order and type in the header of a .npy stream, and where the values begin."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    head = io.BytesIO(stream.read(_HEADER_BYTES))
    try:
        shape, fortran, dtype = readers[np.lib.format.read_magic(head)](head)
    # numpy parses the header as Python text, which can fail in every way that Python has.
    except Exception as error:
        raise DataError(
            f"{what} is not a NumPy array file (unreadable header); check what it holds."
        ) from error
    # numpy takes True for a length of 1.
    damaged = any(isinstance(length, bool) or length < 0 for length in shape)
    if damaged or len(shape) > MAX_DIMENSIONS:
        raise DataError(f"{what} has a damaged header (shape {shape}); write the file again.")
    return shape, fortran, dtype, head.tell()


class _ModestReads:
    """A file that refuses to hand out more at once than a reader of an honest file asks for."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path = stream, path
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes."""
        if size > _DIRECTORY_BYTES:
            raise DataError(
                f"{self._path} has a directory of {size} bytes; write only the arrays of samples "
                "and labels to a .npz file."
            )
        return self._stream.read(size)


def open_npz(path: Path) -> Dataset:
    """Samples of a .npz file, in memory; see `choose_arrays` for which array they are."""
    with (
        readable(path, ".npz file"),
        path.open("rb") as stream,
        zipfile.ZipFile(_ModestReads(stream, path)) as archive,
    ):
        names = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
        samples, labels = choose_arrays(names, path)
        source = ArraySource(_read_member(archive, samples, path), str(path))
        given = None if labels is None else _read_member(archive, labels, path)
        return make_dataset(source, given, path.stem)


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    """One array of an archive, read once header, archive and file agree on its size."""
    what = f"The array {name!r} in {path}"
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{what} is packed in a way that numpy never writes; write it again.")
    with archive.open(info) as stream:
        shape, _, dtype, offset = npy_header(stream, what)
    size = math.prod(shape) * dtype.itemsize
    if size != info.file_size - offset:
        raise DataError(
            f"{what} promises {size} bytes, which is not what the file holds; write it again."
        )
    check_packed(what, size, min(info.compress_size, path.stat().st_size))
    check_bytes(what, size)
    if dtype.hasobject:
        check_dtype(what, dtype)
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)
