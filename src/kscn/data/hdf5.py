"""HDF5 files, read lazily.

Labels that are words of variable length lie in a heap of the file, which the HDF5 library reads
without end or with any amount of memory if it is damaged. They are therefore read in a process of
their own, which can be stopped.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kscn.data.dataset import Dataset, choose_arrays, make_dataset
from kscn.data.limits import check_bytes, check_packed, readable
from kscn.data.source import SlicedSource
from kscn.errors import DataError, reason
from kscn.extras import require

# More arrays than this are not looked at to find the samples.
_MAX_ARRAYS = 10_000
# What reading words may take: time to start, then time and memory to read.
_START_SECONDS = 30
_WORDS_PER_SECOND = 5_000
_WORDS_BYTES = 2**30
_READ_WORDS = """
import json, sys
import h5py
try:
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]), int(sys.argv[3])))
except (ImportError, ValueError, OSError):
    pass
numbers, rows = {}, []
with h5py.File(sys.argv[1], "r") as file:
    words = file[sys.argv[2]]
    for start in range(0, len(words), 16384):
        for word in words[start : start + 16384]:
            text = word.decode(errors="replace") if isinstance(word, bytes) else str(word)
            rows.append(numbers.setdefault(text[:4096], len(numbers)))
json.dump([list(numbers), rows], sys.stdout)
"""


def open_h5(path: Path) -> Dataset:
    """Samples of an HDF5 file, read when needed; see `choose_arrays` for which array they are."""
    h5py = require("h5py", "h5", "reading .h5 files")
    with readable(path, ".h5 file"):
        file = h5py.File(path, "r")  # stays open as long as the lazy samples live
        samples, labels = choose_arrays(_array_names(file, h5py), path)
        given = None if labels is None else _read_labels(file[labels], path)
        array = file[samples]
        source = SlicedSource(array, str(path))
        _check(array, path)
        block = math.prod(array.chunks or ()) * array.dtype.itemsize  # unpacked for any row in it
        check_bytes(f"A block of {path}", max(source.row_bytes, block))
        return make_dataset(source, given, path.stem)


def _array_names(file: Any, h5py: Any) -> list[str]:
    names: list[str] = []

    def visit(name: str, item: Any) -> bool | None:
        if isinstance(item, h5py.Dataset):
            names.append(name)
        return True if len(names) > _MAX_ARRAYS else None

    if file.visititems(visit):
        raise DataError(
            f"{file.filename} has more than {_MAX_ARRAYS} arrays; write the samples to a file of "
            "their own."
        )
    return names


def _check(array: Any, path: Path) -> str:
    """Refuse an array that lies elsewhere, or is larger than the file can hold; what to call it."""
    what = f"The array {reason(array.name)} in {path}"
    if array.is_virtual or array.external:
        raise DataError(f"{what} lies in other files; copy it into one.")
    check_packed(what, array.nbytes, min(array.id.get_storage_size(), path.stat().st_size))
    return what


def _read_labels(array: Any, path: Path) -> np.ndarray:
    what = _check(array, path)
    check_bytes(what, array.nbytes)
    if array.dtype.kind != "O" or array.ndim != 1:
        return np.asarray(array[()])
    command = [sys.executable, "-c", _READ_WORDS, str(path), array.name, str(_WORDS_BYTES)]
    limit = _START_SECONDS + len(array) / _WORDS_PER_SECOND
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit, check=True)
    except subprocess.SubprocessError as error:
        raise DataError(f"{what} cannot be read; write labels again, best as integers.") from error
    words, rows = json.loads(done.stdout)
    return np.array(words, dtype=object)[rows]
