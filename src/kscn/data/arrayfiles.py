"""Files of arrays: .npy and .npz of NumPy, idx as MNIST has it, and HDF5. Never a pickle.

Samples of .npy and HDF5 files stay in them. What is packed is read to memory, once header, archive
and file agree on its size.
"""

import gzip
import io
import math
import re
import struct
import zipfile
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from kscn.data.base import Source, check_dtype
from kscn.data.dataset import Dataset, choose_arrays, make_dataset
from kscn.data.limits import check_bytes, check_found, check_packed, readable
from kscn.data.source import ArraySource, FileSource, MappedSource, SlicedSource
from kscn.errors import DataError, reason
from kscn.extras import require

# The most axes that every supported numpy can handle.
_MOST_AXES = 32
# numpy writes headers of some hundred bytes and refuses more than 10,000, but reads them first.
_HEADER_BYTES = 16_384
# zipfile reads a directory at once and makes an object of every entry; numpy's have a few.
_DIRECTORY_BYTES = 2**20
_IDX_NAME = re.compile(r"[-.]idx\d?(-\w+)?(\.gz)?$")


def open_npy(path: Path) -> Dataset:
    """Samples of a .npy file."""
    return make_dataset(npy_source(path), None, path.stem)


def npy_source(path: Path) -> Source:
    """Samples of a .npy file: nothing is read yet."""
    array = map_npy(path)
    if not array.flags.c_contiguous:  # samples do not follow one another
        return MappedSource(array, str(path))
    return FileSource(path.open("rb"), array.offset, array.shape, array.dtype, str(path))


def map_npy(path: Path) -> np.memmap:
    """The array of a .npy file, of any number of axes, mapped."""
    with path.open("rb") as stream:
        shape, fortran, dtype, offset = npy_header(stream, str(path))
    if dtype.hasobject:  # in a map these would be wild pointers
        check_dtype(str(path), dtype)
    check_found(path, math.prod(shape) * dtype.itemsize, path.stat().st_size - offset)
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


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
    if damaged or len(shape) > _MOST_AXES:
        raise DataError(f"{what} has a damaged header (shape {shape}); write the file again.")
    return shape, fortran, dtype, head.tell()


class _ModestFile(io.FileIO):
    """A file that refuses to hand out more at once than a reader of an honest archive asks for."""

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes."""
        if size is not None and size > _DIRECTORY_BYTES:
            raise DataError(
                f"{self.name} has a directory of {size} bytes; write only the arrays of samples "
                "and labels to a .npz file."
            )
        return super().read(size)


def open_npz(path: Path) -> Dataset:
    """Samples of a .npz file, in memory; see `choose_arrays` for which array they are."""
    with (
        readable(path, ".npz file"),
        _ModestFile(path) as stream,
        zipfile.ZipFile(stream) as archive,
    ):
        names = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
        samples, labels = choose_arrays(names, path)
        source = ArraySource(_read_member(archive, samples, path), str(path))
        given = None if labels is None else _read_member(archive, labels, path)
        return make_dataset(source, given, path.stem)


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
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
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def is_idx_name(path: Path) -> bool:
    """Whether a file is named like an idx file: ...-idx3-ubyte, ....idx, each also with .gz."""
    return _IDX_NAME.search(path.name.lower()) is not None


def open_idx(path: Path) -> Dataset:
    """Images of an idx file, in memory."""
    return make_dataset(ArraySource(read_idx(path), str(path)), None, _IDX_NAME.sub("", path.name))


def read_idx(path: Path) -> np.ndarray:
    """The values of an idx file: bytes, behind a magic number and big-endian lengths."""
    packed, stored = path.suffix.lower() == ".gz", path.stat().st_size
    with readable(path, "idx file"), gzip.open(path) if packed else path.open("rb") as stream:
        kind, axes = struct.unpack(">3sB", stream.read(4))
        if kind != b"\0\0\x08" or not 0 < axes <= 4:
            raise DataError(f"{path} is not an idx file of images as bytes; check what it holds.")
        shape = struct.unpack(f">{axes}I", stream.read(4 * axes))
        promised = math.prod(shape)
        if packed:
            check_packed(str(path), promised, stored)
            check_bytes(str(path), promised)
        else:
            check_found(path, promised, stored - stream.tell())
        # A byte more, to see that there is none.
        content = stream.read(promised + 1)
    check_found(path, promised, len(content))
    if len(content) > promised:
        raise DataError(f"{path} is longer than its header says; fetch it again.")
    return np.frombuffer(content, np.uint8).reshape(shape)


# More names than this are not looked at to find the samples.
_MOST_NAMES = 1000
# Bytes that words of any length may take at a time, should all of them be as long as the file.
_WORDS_BYTES = 2**28


def open_h5(path: Path) -> Dataset:
    """Samples of an HDF5 file, read when needed; see `choose_arrays` for which array they are."""
    h5py = require("h5py", "h5", "reading .h5 files")
    with readable(path, ".h5 file"):
        file = h5py.File(path, "r")  # stays open as long as the lazy samples live
        names = [n for n in islice(file, _MOST_NAMES) if file.get(n, getclass=True) is h5py.Dataset]
        samples, labels = choose_arrays(names, path)
        given = None if labels is None else _read_labels(file[labels], path)
        array = file[samples]
        source = SlicedSource(array, str(path))
        _check(array, path)
        block = math.prod(array.chunks or ()) * array.dtype.itemsize  # unpacked for any row in it
        check_bytes(f"A block of {path}", max(source.row_bytes, block))
        return make_dataset(source, given, path.stem)


def _check(array: Any, path: Path) -> str:
    """Refuse an array that lies elsewhere, or is larger than the file can hold; what to call it."""
    what = f"The array {reason(array.name)} in {path}"
    if array.is_virtual or array.external:
        raise DataError(f"{what} lies in other files; copy it into one.")
    check_packed(what, array.nbytes, min(array.id.get_storage_size(), path.stat().st_size))
    return what


def _read_labels(array: Any, path: Path) -> np.ndarray:
    what, size = _check(array, path), path.stat().st_size
    check_bytes(what, array.nbytes)
    if array.dtype.kind != "O" or array.ndim != 1:
        return np.asarray(array[()])
    # Words of any length: a damaged file may name one long word in every row.
    words: list[bytes] = []
    letters, rows = 0, min(4096, max(1, _WORDS_BYTES // size))
    for start in range(0, len(array), rows):
        some = array[start : start + rows].tolist()
        letters += sum(map(len, some))
        if letters > size:
            raise DataError(f"{what} has more letters than the file; write labels as integers.")
        words += some
    return np.array([*words, None], dtype=object)[:-1]
