"""Label files: `index,label` rows out, and .npy, .csv or .txt in."""

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kscn.errors import DataError, InputError

if TYPE_CHECKING:
    import numpy as np

_ROWS_AT_ONCE = 1_000_000


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes its final name only once it is complete and flushed to disk.

    A place that cannot be written is reported on entry, before any work is done for the file.
    """
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    if path.is_dir():
        raise InputError(f"{path} is a directory; give the name of a file to write.")
    try:
        file = part.open("wb")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose a place that exists and can be written."
        ) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_labels(file: BinaryIO, labels: "np.ndarray") -> None:
    """Write `index,label` rows in pieces, so that the text of many labels is never in memory."""
    file.write(b"index,label\n")
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        block = labels[start : start + _ROWS_AT_ONCE].tolist()
        rows = "".join(f"{start + i},{label}\n" for i, label in enumerate(block))
        file.write(rows.encode())


def read_labels(path: Path, n_samples: int) -> "np.ndarray":
    """Labels from a .npy file, or from the last column of a .csv or .txt file.

    Parameters
    ----------
    path : Path
        The file.
    n_samples : int
        How many labels there must be. A text file with one row more starts with a header.

    Returns
    -------
    ndarray of shape (n_samples,)
        Integers if all labels read as integers, otherwise strings.
    """
    import numpy as np

    try:
        if path.suffix == ".npy":
            labels = np.load(path, allow_pickle=False)
        else:
            with path.open(newline="", encoding="utf-8-sig") as file:
                column = [row[-1].strip() for row in csv.reader(file) if row]
            labels = _parse(column[1:] if len(column) == n_samples + 1 else column)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; give a file with one label per sample.") from None
    except (OSError, ValueError, EOFError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(
            f"cannot read labels from {path} ({reason}); give a .npy array, or a .csv or .txt "
            "file with the label in the last column."
        ) from None
    if labels.shape != (n_samples,):
        found = f"{len(labels)} labels" if labels.ndim == 1 else f"an array of shape {labels.shape}"
        raise DataError(f"{path} has {found} and the run has {n_samples} samples; give one each.")
    return labels


def _parse(column: list[str]) -> "np.ndarray":
    import numpy as np

    try:
        return np.array(column, dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(column)
