"""Files of arrays: .npy and .npz of NumPy, idx as MNIST has it, and HDF5. Never a pickle.

Samples of .npy and HDF5 files stay in them. What is packed is read to memory, once it is known to
what size it unpacks.
"""

import gzip
import io
import math
import re
import struct
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kscn.data.base import Source, check_dtype
from kscn.data.dataset import Dataset, choose_arrays, make_dataset
from kscn.data.limits import check_bytes, readable
from kscn.data.source import ArraySource, FileSource, H5Source
from kscn.errors import DataError, reason
from kscn.extras import require

# numpy writes headers of some hundred bytes and refuses more than 10,000, but reads them first.
_HEADER_BYTES = 16_384
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_IDX_NAME = re.compile(r"[-.]idx\d?(-\w+)?(\.gz)?$")
# More names in an HDF5 file than this are not looked at to find the samples.
_MOST_NAMES = 1000
# Bytes that words of any length may take at a time, should all of them be as long as the file.
_WORDS_BYTES = 2**26
# Deflate cannot shrink data further than this, so a larger claim about the unpacked size is false.
_MAX_DEFLATE_RATIO = 1032


def open_npy(path: Path) -> Dataset:
    """Samples of a .npy file."""
    return make_dataset(npy_source(path), None, path.stem)


def npy_source(path: Path) -> Source:
    """Samples of a .npy file: nothing is read yet."""
    array = map_npy(path)
    if not array.flags.c_contiguous:  # samples do not follow one another
        return ArraySource(array, str(path))
    return FileSource(path.open("rb"), array.offset, array.shape, array.dtype, str(path))


def map_npy(path: Path) -> np.memmap:
    """The array of a .npy file, of any number of axes, mapped."""
    with path.open("rb") as stream:
        head = io.BytesIO(stream.read(_HEADER_BYTES))
    with readable(path, ".npy file"):
        shape, fortran, dtype = _HEADERS[np.lib.format.read_magic(head)](head)
        if dtype.hasobject:  # in a map these would be wild pointers
            check_dtype(str(path), dtype)
        promised, size = math.prod(shape) * dtype.itemsize, path.stat().st_size - head.tell()
        if promised > size:
            raise DataError(
                f"{path} is truncated: its header promises {promised} bytes of values, the file "
                f"has {size}; write or fetch the file again."
            )
        return np.memmap(path, dtype, "r", head.tell(), shape, "F" if fortran else "C")


def open_npz(path: Path) -> Dataset:
    """Samples of a .npz file, in memory; see `choose_arrays` for which array they are."""
    with readable(path, ".npz file"), zipfile.ZipFile(path) as archive:
        names = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
        samples, labels = choose_arrays(names, path)
        source = ArraySource(_read_member(archive, samples, path), str(path))
        given = None if labels is None else _read_member(archive, labels, path)
        return make_dataset(source, given, path.stem)


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    info = archive.getinfo(f"{name}.npy")
    check_bytes(f"The array {name!r} in {path}", info.file_size)
    with archive.open(info) as stream:  # which ends at that size, whatever is packed
        return np.lib.format.read_array(stream, allow_pickle=False)


def is_idx_name(path: Path) -> bool:
    """Whether a file is named like an idx file: ...-idx3-ubyte, ....idx, each also with .gz."""
    return _IDX_NAME.search(path.name.lower()) is not None


def open_idx(path: Path) -> Dataset:
    """Images of an idx file, in memory."""
    return make_dataset(ArraySource(read_idx(path), str(path)), None, _IDX_NAME.sub("", path.name))


def read_idx(path: Path) -> np.ndarray:
    """The values of an idx file: bytes, behind a magic number and big-endian lengths."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with readable(path, "idx file"), opened(path, "rb") as stream:
        kind, axes = struct.unpack(">3sB", stream.read(4))
        if kind != b"\0\0\x08" or not 0 < axes <= 4:
            raise DataError(f"{path} is not an idx file of images as bytes; check what it holds.")
        shape = struct.unpack(f">{axes}I", stream.read(4 * axes))
        promised = math.prod(shape)
        check_bytes(str(path), promised)
        # A byte more, to see that there is none.
        content = stream.read(promised + 1)
    if len(content) != promised:
        raise DataError(
            f"{path} has {'more' if len(content) > promised else 'less'} than the {promised} bytes "
            "of values that its header promises; fetch it again."
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def open_h5(path: Path) -> Dataset:
    """Samples of an HDF5 file, read when needed; see `choose_arrays` for which array they are."""
    h5py = require("h5py", "h5", "reading .h5 files")
    with readable(path, ".h5 file"):
        file = h5py.File(path, "r")  # stays open as long as the lazy samples live
        names = [n for n in islice(file, _MOST_NAMES) if file.get(n, getclass=True) is h5py.Dataset]
        samples, labels = choose_arrays(names, path)
        array = _checked(file[samples], path)
        source = H5Source(array, str(path))
        block = math.prod(array.chunks or ()) * array.dtype.itemsize  # unpacked for any row in it
        check_bytes(f"A block of {path}", max(source.row_bytes, block))
        given = None if labels is None else _read_labels(_checked(file[labels], path), path)
        return make_dataset(source, given, path.stem)


def _checked(array: Any, path: Path) -> Any:
    """An array, unless it lies elsewhere or is larger than the file can hold."""
    what = f"The array {reason(array.name)} in {path}"
    if array.is_virtual or array.external:
        raise DataError(f"{what} lies in other files; copy it into one.")
    stored = min(array.id.get_storage_size(), path.stat().st_size)
    if array.nbytes > stored * _MAX_DEFLATE_RATIO:
        raise DataError(
            f"{what} promises {array.nbytes} bytes, more than {stored} packed bytes can hold; "
            "write the file again."
        )
    return array


def _read_labels(array: Any, path: Path) -> np.ndarray:
    check_bytes(f"The array {reason(array.name)} in {path}", array.nbytes)
    if array.dtype.kind != "O":
        return np.asarray(array[()])
    # Words of any length: a damaged file may name one long word in every row, so each is held once
    # and few rows at a time.
    rows = max(1, _WORDS_BYTES // path.stat().st_size)
    blocks = (array.asstr()[start : start + rows] for start in range(0, len(array), rows))
    held: dict[str, str] = {}
    words = [held.setdefault(word, word) for block in blocks for word in block.ravel().tolist()]
    return np.array(words, dtype=object)
