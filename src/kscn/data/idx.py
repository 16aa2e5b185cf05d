"""The idx format of MNIST: big-endian, magic number, lengths, values; optionally gzipped."""

from __future__ import annotations

import gzip
import io
import math
import re
import struct
from pathlib import Path

import numpy as np

from kscn.data.arrays import ArraySource, MappedSource
from kscn.data.base import Source
from kscn.data.dataset import Dataset, make_dataset
from kscn.data.limits import MAX_DIMENSIONS, check_bytes, check_found, check_packed, readable
from kscn.errors import DataError

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
    if _is_gzipped(path):
        return ArraySource(_unpack(path), str(path))
    return MappedSource(_map(path), str(path))


def read_idx(path: Path) -> np.ndarray:
    """The whole array of an idx file, plain or gzipped."""
    return _unpack(path) if _is_gzipped(path) else np.array(_map(path))


def _is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _map(path: Path) -> np.memmap:
    with path.open("rb") as stream:
        dtype, shape, promised = _read_header(stream, path)
        offset = stream.tell()
    _check_size(path, promised, path.stat().st_size - offset)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)


def _unpack(path: Path) -> np.ndarray:
    with readable(path, "gzip file", "fetch it again"), gzip.open(path) as stream:
        dtype, shape, promised = _read_header(stream, path)
        check_packed(str(path), promised, path.stat().st_size)
        check_bytes(str(path), promised)
        values = np.empty(promised, dtype=np.uint8)
        filled = 0
        while chunk := stream.read(min(_CHUNK, promised - filled)):
            values[filled : filled + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            filled += len(chunk)
        _check_size(path, promised, filled + len(stream.read(1)))
        return values.view(dtype).reshape(shape)


def _read_header(stream: io.BufferedIOBase, path: Path) -> tuple[np.dtype, tuple[int, ...], int]:
    """Type and shape of the values, and how many bytes they take."""
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES:
        raise DataError(f"{path} is not an idx file (wrong magic number); check what it holds.")
    if not 0 < magic[3] <= MAX_DIMENSIONS:
        raise DataError(f"{path} claims {magic[3]} dimensions; check what it holds.")
    lengths = stream.read(4 * magic[3])
    check_found(path, 4 * magic[3], len(lengths))
    shape = struct.unpack(f">{magic[3]}I", lengths)
    dtype = np.dtype(_DTYPES[magic[2]])
    return dtype, shape, math.prod(shape) * dtype.itemsize


def _check_size(path: Path, promised: int, found: int) -> None:
    check_found(path, promised, found)
    if found > promised:
        raise DataError(
            f"{path} is longer than its header says, {promised} bytes of values; fetch it again."
        )


def _labels_beside(path: Path) -> Path | None:
    """The labels file under the standard naming, packed or not."""
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    if name == path.name:
        return None
    plain = name.removesuffix(".gz")
    found = (path.with_name(candidate) for candidate in (name, plain, plain + ".gz"))
    return next((candidate for candidate in found if candidate.is_file()), None)
