"""Label files: `index,label` or `file,label` rows out, and .npy, .csv or .txt in."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kscn.cli.runfiles import AGAIN
from kscn.errors import DataError, reason

if TYPE_CHECKING:
    import numpy as np

_ROWS_AT_ONCE = 1_000_000
_FILE = "file"  # the head of a column of file names
# Names of files are bytes, which need not be text.
_BYTES = "surrogateescape"
_FORMS = (
    "give one label per sample, as a .npy array, or as a .csv or .txt file with the label in the "
    "last column."
)


def write_labels(file: BinaryIO, labels: "np.ndarray", names: Sequence[str] | None = None) -> None:
    """Write rows of index, or name, and label in pieces: the whole text is never in memory."""
    file.write(f"{'index' if names is None else _FILE},label\n".encode())
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        block = labels[start : start + _ROWS_AT_ONCE].tolist()
        keys = range(start, start + len(block)) if names is None else names[start:]
        file.write(_rows(zip(keys, block, strict=False)))


def write_left_out(file: BinaryIO, left_out: Mapping[str, str]) -> None:
    """Write `file,reason` rows of files that cannot be read."""
    file.write(_rows([(_FILE, "reason"), *left_out.items()]))


def _rows(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(errors=_BYTES)


def read_names(path: Path, n_samples: int) -> list[str] | None:
    """The names of files in the first column of a file of labels, None if it has none."""
    try:
        with path.open(newline="", encoding="utf-8-sig", errors=_BYTES) as file:
            rows = csv.reader(file)
            if next(rows, [])[:1] != [_FILE]:
                return None
            return [row[0] for row in islice(rows, n_samples) if row]
    except (OSError, csv.Error) as error:
        raise DataError(
            f"cannot read names of files from {path} ({reason(error)}); {AGAIN}"
        ) from None


def read_labels(path: Path, n_samples: int, advice: str = _FORMS) -> "np.ndarray":
    """Labels from a .npy file, or from the last column of a .csv or .txt file.

    Parameters
    ----------
    path : Path
        The file.
    n_samples : int
        How many labels there must be. A text file with one row more starts with a header.
    advice : str
        What to do about a file that cannot be used.

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
            with path.open(newline="", encoding="utf-8-sig", errors=_BYTES) as file:
                column = [row[-1].strip() for row in csv.reader(file) if row]
            "".join(column).encode()  # labels are text, whatever the names of files are
            labels = _parse(column[1:] if len(column) == n_samples + 1 else column)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; {advice}") from None
    except (OSError, ValueError, EOFError, csv.Error) as error:
        raise DataError(f"cannot read labels from {path} ({reason(error)}); {advice}") from None
    if labels.shape != (n_samples,):
        found = f"{len(labels)} labels" if labels.ndim == 1 else f"an array of shape {labels.shape}"
        raise DataError(f"{path} has {found} and the run has {n_samples} samples; {advice}")
    return labels


def _parse(column: list[str]) -> "np.ndarray":
    import numpy as np

    if any("_" in label for label in column):  # which Python would leave out of a number
        return np.array(column)
    try:
        return np.array(column, dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(column)
