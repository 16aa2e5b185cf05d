"""Label files: `index,label` rows out, and .npy, .csv or .txt in."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kscn.errors import DataError

if TYPE_CHECKING:
    import numpy as np

_ROWS_AT_ONCE = 1_000_000
_FORMS = (
    "give one label per sample, as a .npy array, or as a .csv or .txt file with the label in the "
    "last column."
)


def write_labels(file: BinaryIO, labels: "np.ndarray") -> None:
    """Write `index,label` rows in pieces, so that the text of many labels is never in memory."""
    file.write(b"index,label\n")
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        block = labels[start : start + _ROWS_AT_ONCE].tolist()
        rows = "".join(f"{start + i},{label}\n" for i, label in enumerate(block))
        file.write(rows.encode())


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
            with path.open(newline="", encoding="utf-8-sig") as file:
                column = [row[-1].strip() for row in csv.reader(file) if row]
            labels = _parse(column[1:] if len(column) == n_samples + 1 else column)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; {advice}") from None
    except (OSError, ValueError, EOFError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"cannot read labels from {path} ({reason}); {advice}") from None
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
