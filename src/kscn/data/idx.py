"""The idx format of MNIST: big-endian, magic number, lengths, values; optionally gzipped."""

from __future__ import annotations

import gzip
import io
import math
import re
import struct
import zlib
from pathlib import Path

import numpy as np

from kscn.data.arrays import ArraySource, MappedSource
from kscn.data.base import Source, check_shape
from kscn.data.dataset import Dataset, make_dataset
from kscn.data.limits import MAX_DEFLATE_RATIO, MAX_DIMENSIONS, check_bytes
from kscn.errors import DataError, reason

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"[-.]idx\d?(-\w+)?(\.gz)?$")
_CHUNK = 2**20


def is_idx_name(path: Path) -> bool:
    """Whether a file is named like an idx file: ...-idx3-ubyte, ....idx, each also with .gz."""
    return _NAME.search(path.name.lower()) is not None


def open_idx(path: Path) -> Dataset:
    """Images of an idx file, with the labels file beside it if there is one."""
    labels_path = _labels_beside(path)
    labels = None if labels_path is None else read_idx(labels_path)
    return make_dataset(idx_source(path), labels, _NAME.sub("", path.name))


def idx_source(path: Path) -> Source:
    """Samples of an idx file: mapped where it is plain, unpacked to memory where gzipped."""
    if path.suffix.lower() == ".gz":
        return ArraySource(read_idx(path), str(path))
    with path.open("rb") as stream:
        dtype, shape, offset = _read_header(stream, path)
    check_shape(str(path), shape)
    _check_size(path, math.prod(shape) * dtype.itemsize, path.stat().st_size - offset)
    mapping = np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)
    return MappedSource(mapping, mapping, str(path))


def read_idx(path: Path) -> np.ndarray:
    """The whole array of an idx file, plain or gzipped."""
    gzipped = path.suffix.lower() == ".gz"
    stored = path.stat().st_size
    try:
        with gzip.open(path) if gzipped else path.open("rb") as stream:
            dtype, shape, offset = _read_header(stream, path)
            promised = math.prod(shape) * dtype.itemsize
            if gzipped and promised > stored * MAX_DEFLATE_RATIO:
                raise DataError(
                    f"{path} promises {promised} bytes in its header, more than {stored} gzipped "
                    "bytes can hold; fetch the file again."
                )
            check_bytes(str(path), promised)
            if not gzipped:
                _check_size(path, promised, stored - offset)
            return _read_exactly(stream, path, promised).view(dtype).reshape(shape)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(
            f"{path} is no complete gzip file ({reason(error)}); fetch it again."
        ) from error


def _read_exactly(stream: io.BufferedIOBase, path: Path, promised: int) -> np.ndarray:
    """The values, after making sure that there are neither fewer nor more than promised."""
    values = np.empty(promised, dtype=np.uint8)
    filled = 0
    while filled < promised:
        chunk = stream.read(min(_CHUNK, promised - filled))
        if not chunk:
            break
        values[filled : filled + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        filled += len(chunk)
    _check_size(path, promised, filled + len(stream.read(1)))
    return values


def _read_header(stream: io.BufferedIOBase, path: Path) -> tuple[np.dtype, tuple[int, ...], int]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES:
        raise DataError(f"{path} is not an idx file (wrong magic number); check what it holds.")
    if not 0 < magic[3] <= MAX_DIMENSIONS:
        raise DataError(f"{path} claims {magic[3]} dimensions; check what it holds.")
    lengths = stream.read(4 * magic[3])
    if len(lengths) < 4 * magic[3]:
        raise DataError(f"{path} is truncated within its header; fetch the file again.")
    return np.dtype(_DTYPES[magic[2]]), struct.unpack(f">{magic[3]}I", lengths), 4 + len(lengths)


def _check_size(path: Path, promised: int, found: int) -> None:
    if found != promised:
        state = "truncated" if found < promised else "longer than its header says"
        raise DataError(
            f"{path} is {state}: the header promises {promised} bytes of values, the file has "
            f"{'more' if found > promised else found}; fetch the file again."
        )


def _labels_beside(path: Path) -> Path | None:
    """The labels file under the standard naming, packed or not."""
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    if name == path.name:
        return None
    plain = name.removesuffix(".gz")
    found = (path.with_name(candidate) for candidate in (name, plain, plain + ".gz"))
    return next((candidate for candidate in found if candidate.is_file()), None)
