"""Tables as text: .csv files, one sample per row.

What the columns are is decided by the first rows. All rows are then read by pyarrow, where it is
installed, or else by Python. pyarrow only ever reads what Python would read to the same numbers:
at anything unusual Python starts again, and it alone finds the words for what is wrong.
"""

from __future__ import annotations

import csv
import os
import re
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from kscn.data.arrays import ArraySource, MappedSource
from kscn.data.base import Source
from kscn.data.cells import is_header, is_number, label_column, plain, unfit_label
from kscn.data.dataset import Dataset, make_dataset
from kscn.errors import DataError, reason

# Letters in a row: a hundred thousand columns, but no file without a line end taken for one row.
_LONGEST_ROW = 2**22
# Numbers that are passed on at a time, and bytes of all numbers up to which they stay in memory.
_PIECE = 2**17
_MEMORY_BYTES = 64 * 2**20
# In smaller files importing pyarrow takes longer than reading; in wider ones its columns do.
_SMALL_BYTES = 8 * 2**20
_WIDE = 2048
_WHOLE = re.compile(r"[+-]?\d{1,30}")


def open_csv(path: Path) -> Dataset:
    """Samples of a .csv file, as float64: in memory, or in a temporary file if there are many.

    The separator is a comma, semicolon or tab, or else blanks. A first line of names is recognised
    by its words. Labels are the column called label, labels, y, target or class, otherwise the last
    column if it holds words. A nameless first column, the row index that pandas writes, is left
    out. All other columns are numeric; what does not fit is an error that names line and column.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = _Lines(stream, path)
            layout = _look(lines, path)
            samples, labels = _read_by_pyarrow(path, layout) or _read(lines, layout, path)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a text table ({reason(error)}); check what it holds."
        ) from error
    samples.columns = layout.features
    return make_dataset(samples, labels, path.stem)


class _Lines:
    """The lines of a file, unless those of one row of the table grow too long."""

    def __init__(self, stream: IO[str], path: Path) -> None:
        self._stream, self._path = stream, path
        self._left = _LONGEST_ROW

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise DataError(
                f"{self._path} has a row of more than {_LONGEST_ROW} letters; check that it is a "
                "table with one sample per line, or convert it to .npy."
            )
        if not line:
            raise StopIteration
        return line

    def separator(self) -> str:
        """What stands between the cells, by the first two lines that are not blank."""
        first = second = ""
        for line in self:
            self._left = _LONGEST_ROW
            first, second = first or line.strip("\r\n"), line.strip() if first else ""
            if first and second:
                break
        found = max(",;\t", key=first.count)
        if found in first:
            return found
        # The name of a single column may have blanks in it, its numbers have none.
        return " " if len((second or first).split()) > 1 else ","

    def rows(self, separator: str) -> Iterator[tuple[int, list[str]]]:
        """The rows that are not blank, from the beginning, and the number of the line of each."""
        self._stream.seek(0)
        self._left = _LONGEST_ROW
        blank = separator == " "
        reader = csv.reader(self, delimiter=separator, skipinitialspace=blank)
        for row in reader:
            self._left = _LONGEST_ROW
            if blank and row and not row[-1]:
                row.pop()  # a blank before the line end
            if row:
                yield reader.line_num, row


@dataclass(frozen=True)
class _Layout:
    """What the first rows say about a table.

    Attributes
    ----------
    separator : str
        Between cells; a blank stands for any number of them.
    width : int
        Cells in a row.
    names : list of str, or None
        The first row, if it is one of names.
    start : int
        Lines up to and with that row.
    indexed : bool
        Whether the first column is a row index.
    columns : list of int
        Where the numbers are.
    label : int or None
        Where the labels are.
    named : bool
        Whether the name of that column says so.
    """

    separator: str
    width: int
    names: list[str] | None
    start: int
    indexed: bool
    columns: list[int]
    label: int | None
    named: bool

    @property
    def features(self) -> list[str]:
        """What the columns of numbers are called; nothing where names merely count them."""
        names = [self.names[column] for column in self.columns] if self.names else []
        return [] if all(map(is_number, names)) else names

    def place(self, line: int, column: int) -> str:
        """Where a cell is, for people."""
        name = repr(reason(self.names[column])) if self.names else str(column + 1)
        return f"in line {line}, column {name}"


def _look(lines: _Lines, path: Path) -> _Layout:
    separator = lines.separator()
    (line, head), (_, second) = [*islice(lines.rows(separator), 2), *[(0, None)] * 2][:2]
    if head is None:
        raise DataError(f"{path} has no rows; write the samples again.")
    names = head if is_header(head, second) else None
    label, named = label_column(names, second or head if names else head)
    indexed = names is not None and not head[0].strip()
    columns = [c for c in range(indexed, len(head)) if c != label]
    start = line if names else 0
    return _Layout(separator, len(head), names, start, indexed, columns, label, named)


def _read(lines: _Lines, layout: _Layout, path: Path) -> tuple[Source, np.ndarray | None]:
    """Samples and labels, or an error that names the line and column of what does not fit."""
    values, labels = _Table(len(layout.columns), str(path)), _Labels()
    for line, row in islice(lines.rows(layout.separator), layout.names is not None, None):
        if len(row) != layout.width:
            raise DataError(
                f"{path} has {len(row)} columns in line {line}, but {layout.width} before; make "
                "all rows one length."
            )
        if layout.label is not None:
            labels.append(row.pop(layout.label).strip(), line)
        if layout.indexed:
            del row[0]
        try:
            numbers = list(map(float, row))
        except ValueError:
            numbers = None
        if numbers is None or not plain("".join(row)):
            unread = next(place for place, cell in enumerate(row) if not is_number(cell))
            place = layout.place(line, layout.columns[unread])
            raise _unfit(path, row[unread], place, "a number is expected")
        values.append(numbers)
    unfit = labels.unfit(layout.named)
    if unfit is not None and layout.label is not None:
        place = layout.place(labels.lines[unfit], layout.label)
        expected = "a label is expected" if layout.named else "there are words before"
        raise _unfit(path, unfit, place, expected)
    return values.source(), labels.values()


def _unfit(path: Path, cell: str, place: str, expected: str) -> DataError:
    if not cell.strip():
        return DataError(
            f"{path} has an empty cell {place}, where {expected}; fill it in or remove the row."
        )
    return DataError(
        f"{path} has {reason(cell)!r} {place}, where {expected}; correct it or remove the row, or "
        "call the column label in a first line of names if it holds labels."
    )


def _read_by_pyarrow(path: Path, layout: _Layout) -> tuple[Source, np.ndarray | None] | None:
    """Samples and labels, many times as fast; None if there is anything unusual about the file."""
    if path.stat().st_size < _SMALL_BYTES or layout.width > _WIDE:
        return None
    if layout.label is not None and layout.label >= layout.width:
        return None  # a name without a column, which the other way tells in words
    try:
        import pyarrow
        from pyarrow import csv as reading
    except ImportError:
        return None
    every = [str(column) for column in range(layout.width)]
    wanted = [every[column] for column in layout.columns]
    types = dict.fromkeys(wanted, pyarrow.float64())
    if layout.label is not None:
        types[every[layout.label]] = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    values, labels = _Table(len(wanted), str(path)), _Labels()
    try:
        with (
            # A file of its own: one of Python would be read by a thread that may wait for this one.
            pyarrow.OSFile(os.fsencode(path)) as stream,
            reading.open_csv(
                stream,
                reading.ReadOptions(use_threads=False, column_names=every, skip_rows=layout.start),
                reading.ParseOptions(delimiter=layout.separator, newlines_in_values=True),
                # Nothing stands for a missing value, so that an empty cell is no number.
                reading.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=[],
                    strings_can_be_null=False,
                ),
            ) as blocks,
        ):
            for block in blocks:
                numbers = np.empty((block.num_rows, len(wanted)))
                for place, column in enumerate(block.columns[: len(wanted)]):
                    numbers[:, place] = column.to_numpy()
                if np.isnan(numbers).any():  # "nan(1)" is one only here
                    return None
                values.extend(numbers)
                if layout.label is not None:
                    words = block.columns[-1]
                    labels.extend(words.dictionary.to_pylist(), words.indices.to_numpy())
    except pyarrow.ArrowException:
        return None
    return None if labels.unfit(layout.named) is not None else (values.source(), labels.values())


class _Table:
    """Rows of numbers that come bit by bit: in memory, or in a temporary file if there are many."""

    def __init__(self, width: int, name: str) -> None:
        self._width, self._name = width, name
        self._rows = 0
        self._waiting = array("d")
        # Closed with the last map of it, or with this.
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115

    def append(self, row: list[float]) -> None:
        """One row more."""
        self._waiting.extend(row)
        self._rows += 1
        if len(self._waiting) >= _PIECE:
            self._write(self._waiting)
            self._waiting = array("d")

    def extend(self, rows: np.ndarray) -> None:
        """Many rows at once."""
        self._rows += len(rows)
        self._write(rows)

    def _write(self, numbers: array[float] | np.ndarray) -> None:
        try:
            self._file.write(numbers.tobytes())
        except OSError as error:
            raise DataError(
                f"{self._name} is large and its numbers cannot be written to "
                f"{tempfile.gettempdir()} ({reason(error)}); make room or set TMPDIR to another "
                "folder."
            ) from error

    def source(self) -> Source:
        """All rows."""
        self._write(self._waiting)
        shape = (self._rows, self._width)
        if self._file.tell() <= _MEMORY_BYTES:
            self._file.seek(0)
            values = np.frombuffer(bytearray(self._file.read()))
            return ArraySource(values.reshape(shape), self._name)
        self._file.flush()
        mapping = np.memmap(self._file, dtype=np.float64, mode="r", shape=shape)
        return MappedSource(mapping, mapping, self._name)


class _Labels:
    """Labels that come one by one; equal ones are kept once, with the line of the first."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._all = array("q")

    def append(self, label: str, line: int) -> None:
        """One label more."""
        self.lines.setdefault(label, line)
        self._all.append(self._numbers.setdefault(label, len(self._numbers)))

    def extend(self, words: list[str], places: np.ndarray) -> None:
        """Labels as places in a list of words."""
        labels = [word.strip() for word in words]
        numbers = [self._numbers.setdefault(label, len(self._numbers)) for label in labels]
        self._all.frombytes(np.array(numbers, dtype=np.int64)[places].tobytes())

    def unfit(self, named: bool) -> str | None:
        """A label that does not go with the others, see `unfit_label`."""
        return unfit_label(list(self._numbers), named)

    def values(self) -> np.ndarray | None:
        """Numbers if all of them are, else words; None if there are none."""
        words = list(self._numbers)
        if not words:
            return None
        if not all(map(is_number, words)):
            known = np.array(words, dtype=object)
        # As floats, whole numbers beyond 2**53 would lose digits.
        elif all(_WHOLE.fullmatch(word) and -(2**63) <= int(word) < 2**63 for word in words):
            known = np.array([int(word) for word in words], dtype=np.int64)
        else:
            known = np.array(words, dtype=np.float64)
        return known[np.frombuffer(self._all, dtype=np.int64)]
