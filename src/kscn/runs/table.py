"""Label files: `index,label` or `file,label` rows out, and .npy, .csv or .txt in."""

import codecs
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kscn.errors import DataError, reason
from kscn.runs.records import AGAIN

if TYPE_CHECKING:
    import numpy as np

_FILE = "file"  # the head of a column of file names
_BYTES = "surrogateescape"  # names of files are bytes, which need not be text
_FORMS = (
    "give one label per sample, as a .npy array, or as a .csv or .txt file with the label in the "
    "last column."
)


def write_labels(file: BinaryIO, labels: "np.ndarray", names: Sequence[str] | None = None) -> None:
    """Write rows of index, or name, and label, one by one: they may be many millions."""
    _write_rows(file, [("index" if names is None else _FILE, "label")])
    _write_rows(file, zip(count() if names is None else names, labels, strict=False))


def write_left_out(file: BinaryIO, left_out: Mapping[str, str]) -> None:
    """Write `file,reason` rows of files that cannot be read."""
    _write_rows(file, [(_FILE, "reason"), *left_out.items()])


def _write_rows(file: BinaryIO, rows: Iterable[Sequence[object]]) -> None:
    text = codecs.getwriter("utf-8")(file, _BYTES)
    csv.writer(text, lineterminator="\n").writerows(rows)


def _read_rows(path: Path) -> Iterator[list[str]]:
    with path.open(newline="", encoding="utf-8-sig", errors=_BYTES) as file:
        yield from filter(None, csv.reader(file))


def read_names(path: Path, n_samples: int) -> list[str] | None:
    """The names of files in the first column of a file of labels, None if it has none."""
    try:
        rows = _read_rows(path)
        if next(rows, [""])[0] != _FILE:
            return None
        return [row[0] for row in islice(rows, n_samples)]
    except (OSError, csv.Error) as error:
        raise DataError(
            f"cannot read names of files from {path} ({reason(error)}); {AGAIN}"
        ) from None


def read_labels(path: Path, n_samples: int, advice: str = _FORMS) -> "np.ndarray":
    """Labels from a .npy file, or from the last column of a .csv or .txt file.

    Integers if all of them read as integers, otherwise strings. A text file with one row more than
    there are samples starts with a header. `advice` says what to do about a file of no use.
    """
    import numpy as np

    try:
        if path.suffix == ".npy":
            labels = np.load(path, allow_pickle=False)
        else:
            column = [row[-1].strip() for row in _read_rows(path)]
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

    with suppress(ValueError, OverflowError):
        if not any("_" in label for label in column):  # which Python would leave out of a number
            return np.array(column, dtype=np.int64)
    return np.array(column)
