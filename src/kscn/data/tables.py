"""Tables as text: .csv files, one sample per row.

What the columns are is decided by the first rows: a column is numeric or holds labels. A cell that
fits neither, such as an empty one, NA or 1_000, is never a reason to take a row for names or a
column for labels.

All rows are then read by pyarrow, where it is installed, or else by Python. pyarrow only ever reads
what Python would read to the same numbers: at anything unusual Python starts again, and it alone
finds the words for what is wrong.
"""

from __future__ import annotations

import csv
import os
import re
import tempfile
from array import array
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np

from kscn.data.arrays import ArraySource, MappedSource
from kscn.data.base import Source
from kscn.data.dataset import LABEL_COLUMNS, Dataset, make_dataset
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
_MISSING = {
    "", "?", ".", "-", "--", "na", "n/a", "n.a.", "#n/a", "<na>", "nan", "none", "null", "nil",
    "missing",
}  # fmt: skip
# Numbers as people write them, which no parser reads alike: 1_000, 1'000, 1.000,5, 1.2.3, 5 %.
_NUMERAL = re.compile(r"(?=\D*\d)[+-]?[\d_.,' ]*(e[+-]?\d+)?%?")


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
            table = _read_by_pyarrow(path, layout) or _read(lines, layout, path)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a text table ({reason(error)}); check what it holds."
        ) from error
    samples = table.samples()
    samples.columns = layout.features
    return make_dataset(samples, table.labels(), path.stem)


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


class _Layout(NamedTuple):
    """What the first rows say about a table."""

    separator: str  # a blank stands for any number of them
    width: int  # cells in a row
    names: list[str] | None  # the first row, if it is one of names
    start: int  # lines up to and with that row
    columns: list[int]  # where the numbers are
    label: int | None  # where the labels are
    named: bool  # whether the name of that column says so

    @property
    def features(self) -> list[str]:
        """What the columns of numbers are called; nothing where names merely count them."""
        names = [self.names[column] for column in self.columns] if self.names else []
        return [] if all(map(_is_number, names)) else names


def _look(lines: _Lines, path: Path) -> _Layout:
    separator = lines.separator()
    (line, head), (_, second) = [*islice(lines.rows(separator), 2), *[(0, None)] * 2][:2]
    if head is None:
        raise DataError(f"{path} has no rows; write the samples again.")
    names = head if _is_header(head, second) else None
    sample = second[: len(head)] if names and second else head
    label = next((c for c, name in enumerate(names or []) if _says_label(name)), None)
    named = label is not None
    if label is None and _kind(sample[-1]) == "word":
        label = len(sample) - 1
    indexed = names is not None and not head[0].strip()
    columns = [c for c in range(indexed, len(head)) if c != label]
    if not columns:
        raise DataError(f"{path} has no columns of numbers; check what it holds.")
    return _Layout(separator, len(head), names, line if names else 0, columns, label, named)


def _is_header(head: list[str], second: list[str] | None) -> bool:
    """Whether the first row of a table holds names, given the second.

    Words alone are names. Beside numbers that merely count the columns, as pandas writes them, or
    beside missing cells they are names if one of them says label or stands above a number.
    """
    kinds = [_kind(cell) for cell in head]
    numbers = [cell.strip() for cell, kind in zip(head, kinds, strict=True) if kind == "number"]
    counting = [[str(i + first) for i in range(len(numbers))] for first in (0, 1)]
    if numbers and numbers not in counting:
        return False
    below = [_kind(cell) for cell in second or []]
    indexed = not head[0].strip() and len(head) > 1
    if "neither" not in kinds[indexed:] and "word" in kinds and not numbers:
        return True
    if indexed and len(numbers) == len(head) - 1:
        return below[:1] == ["number"]  # a row index and columns without names
    return any(
        kind == "word" and (_says_label(cell) or under == "number")
        for cell, kind, under in zip_longest(head, kinds, below, fillvalue="")
    )


def _kind(cell: str) -> Literal["number", "word", "neither"]:
    """What a cell is; a missing value and a number in a notation of people are neither."""
    word = cell.strip().lower()
    if word in _MISSING:
        return "neither"
    if _is_number(cell):
        return "number"
    return "neither" if _NUMERAL.fullmatch(word) else "word"


def _is_number(cell: str) -> bool:
    """Whether a cell is a number as programs write it, nan and inf included."""
    try:
        float(cell)
    except ValueError:
        return False
    return _is_plain(cell)


def _is_plain(cell: str) -> bool:
    """Whether what `float` accepts is no 1_000 and has no digits of other scripts."""
    return "_" not in cell and cell.isascii()


def _says_label(name: str) -> bool:
    return name.strip().lower() in LABEL_COLUMNS


def _read(lines: _Lines, layout: _Layout, path: Path) -> _Table:
    """All rows, or an error that names the line and column of what does not fit."""

    def unfit(cell: str, line: int, column: int, expected: str) -> DataError:
        name = repr(reason(layout.names[column])) if layout.names else str(column + 1)
        what = repr(reason(cell)) if cell.strip() else "an empty cell"
        return DataError(
            f"{path} has {what} in line {line}, column {name}, where {expected}; correct it or "
            "remove the row, or call the column label in a first line of names if it holds labels."
        )

    table = _Table(len(layout.columns), str(path))
    numbers, labels = array("d"), array("q")
    lines_of_labels: dict[str, int] = {}  # of the first one of each
    for line, row in islice(lines.rows(layout.separator), layout.names is not None, None):
        if len(row) != layout.width:
            raise DataError(
                f"{path} has {len(row)} columns in line {line}, but {layout.width} before; make "
                "all rows one length."
            )
        cells = [row[column] for column in layout.columns]
        try:
            numbers.extend(map(float, cells))
            fits = _is_plain("".join(cells))
        except ValueError:
            fits = False
        if not fits:
            column = next(c for c in layout.columns if not _is_number(row[c]))
            raise unfit(row[column], line, column, "a number is expected")
        if layout.label is not None:
            label = row[layout.label].strip()
            lines_of_labels.setdefault(label, line)
            labels.append(table.number_of(label))
        if len(numbers) >= _PIECE:
            table.extend(numbers, labels)
            numbers, labels = array("d"), array("q")
    table.extend(numbers, labels)
    word = table.unfit_label(layout.named)
    if word is not None and layout.label is not None:
        expected = "a label is expected" if layout.named else "there are words before"
        raise unfit(word, lines_of_labels[word], layout.label, expected)
    return table


def _read_by_pyarrow(path: Path, layout: _Layout) -> _Table | None:
    """All rows, many times as fast; None if there is anything unusual about the file."""
    if path.stat().st_size < _SMALL_BYTES or layout.width > _WIDE:
        return None
    try:
        import pyarrow
        from pyarrow import csv as reading
    except ImportError:
        return None
    every = [str(column) for column in range(layout.width)]
    width = len(layout.columns)
    types = {every[column]: pyarrow.float64() for column in layout.columns}
    if layout.label is not None:
        types[every[layout.label]] = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    table = _Table(width, str(path))
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
                numbers = np.empty((block.num_rows, width))
                for place, column in enumerate(block.columns[:width]):
                    numbers[:, place] = column.to_numpy()
                if np.isnan(numbers).any():  # "nan(1)" is one only here
                    return None
                labels = np.empty(0, dtype=np.int64)
                for words in block.columns[width:]:
                    known = [table.number_of(word.strip()) for word in words.dictionary.to_pylist()]
                    labels = np.array(known, dtype=np.int64)[words.indices.to_numpy()]
                table.extend(numbers, labels)
    except pyarrow.ArrowException:
        return None
    return table if table.unfit_label(layout.named) is None else None


class _Table:
    """Rows that come block by block: in memory, or in a temporary file if there are many."""

    def __init__(self, width: int, name: str) -> None:
        self._width, self._name = width, name
        # Closed with the last map of it, or with this.
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115
        self._numbers: dict[str, int] = {}
        self._labels = array("q")

    def number_of(self, label: str) -> int:
        """The number that stands for a label in `extend`."""
        return self._numbers.setdefault(label, len(self._numbers))

    def extend(self, rows: array[float] | np.ndarray, labels: array[int] | np.ndarray) -> None:
        """More rows of float64, and their labels as int64 numbers."""
        self._labels.frombytes(labels.tobytes())
        try:
            self._file.write(rows.tobytes())
        except OSError as error:
            raise DataError(
                f"{self._name} is large and its numbers cannot be written to "
                f"{tempfile.gettempdir()} ({reason(error)}); make room or set TMPDIR to another "
                "folder."
            ) from error

    def samples(self) -> Source:
        """All rows."""
        size = self._file.tell()
        shape = (size // (8 * self._width), self._width)
        if size <= _MEMORY_BYTES:
            self._file.seek(0)
            values = np.frombuffer(bytearray(self._file.read()))
            return ArraySource(values.reshape(shape), self._name)
        self._file.flush()
        mapping = np.memmap(self._file, dtype=np.float64, mode="r", shape=shape)
        return MappedSource(mapping, self._name)

    def unfit_label(self, named: bool) -> str | None:
        """A label that does not go with the others, if there is one.

        In a column that is not called label, labels are words throughout. In one that is they may
        also be numbers, or both, but none may be missing.
        """
        kinds = {label: _kind(label) for label in self._numbers}
        # NA may be the name of a class beside other names, hardly beside numbers.
        numeric = "number" in kinds.values() and "word" not in kinds.values()
        for label, kind in kinds.items():
            missing = not label or (kind == "neither" and numeric)
            if missing or (not named and kind != "word"):
                return label
        return None

    def labels(self) -> np.ndarray | None:
        """Numbers if all of them are, else words; None if there are none."""
        words = list(self._numbers)
        if not words:
            return None
        if not all(map(_is_number, words)):
            known = np.array(words, dtype=object)
        # As floats, whole numbers beyond 2**53 would lose digits.
        elif all(_WHOLE.fullmatch(word) and -(2**63) <= int(word) < 2**63 for word in words):
            known = np.array([int(word) for word in words], dtype=np.int64)
        else:
            known = np.array(words, dtype=np.float64)
        return known[np.frombuffer(self._labels, dtype=np.int64)]
