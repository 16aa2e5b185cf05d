"""Tables as text: .csv files, one sample per row."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from kscn.data.arrays import ArraySource, MappedSource
from kscn.data.base import Source
from kscn.data.dataset import LABEL_COLUMNS, Dataset, make_dataset, reason
from kscn.errors import DataError

# Letters in a row: a hundred thousand columns, but no file without a line end taken for one row.
_LONGEST_ROW = 2**22
# Numbers are passed on in pieces of this many bytes; up to this many bytes stay in memory.
_PIECE_BYTES = 2**20
_MEMORY_BYTES = 64 * 2**20


def open_csv(path: Path) -> Dataset:
    """Samples of a .csv file, as float64: in memory, or in a temporary file if there are many.

    The separator is a comma, semicolon or tab. A first line of names is recognised by not being
    numeric. Labels are the column called label, labels, y, target or class, otherwise the last
    column if it is not numeric. A nameless first column, the row index that pandas writes, is left
    out.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = _Lines(stream, path)
            first_line = next(lines, "")
            stream.seek(0)
            separator = max(",;\t", key=first_line.count)
            return _parse(lines.rows(separator), path)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a text table ({reason(error)}); check what it holds."
        ) from error


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

    def rows(self, separator: str) -> Iterator[list[str]]:
        """The rows that are not blank, from the beginning; quotes may hold line ends."""
        self._left = _LONGEST_ROW
        for row in csv.reader(self, delimiter=separator):
            self._left = _LONGEST_ROW
            if row:
                yield row


class _Table:
    """Rows of numbers that come one by one: in memory, or in a temporary file if there are many."""

    def __init__(self, width: int, name: str) -> None:
        self._name = name
        self._piece = np.empty((max(1, _PIECE_BYTES // max(1, 8 * width)), width))
        self._filled = 0
        self._pieces: list[np.ndarray] = []
        self._rows = 0
        self._file: IO[bytes] | None = None

    def append(self, row: list[float]) -> None:
        if self._filled == len(self._piece):
            self._pass_on()
        self._piece[self._filled] = row
        self._filled += 1

    def _pass_on(self) -> None:
        self._rows += self._filled
        self._pieces.append(self._piece[: self._filled].copy())
        self._filled = 0
        if self._file is not None or self._rows * self._piece[0].nbytes > _MEMORY_BYTES:
            try:
                self._write()
            except OSError as error:
                raise DataError(
                    f"{self._name} is large and its numbers cannot be written to "
                    f"{tempfile.gettempdir()} ({error.strerror or reason(error)}); make room or "
                    "set TMPDIR to another folder."
                ) from error

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as its map
        for piece in self._pieces:
            piece.tofile(self._file)
        self._pieces = []

    def source(self) -> Source:
        self._pass_on()
        if self._file is None:
            return ArraySource(np.concatenate(self._pieces), self._name)
        self._file.flush()
        shape = (self._rows, self._piece.shape[1])
        mapping = np.memmap(self._file, dtype=np.float64, mode="r", shape=shape)
        return MappedSource(mapping, mapping, self._name)


class _Words:
    """Labels that come one by one; equal ones are kept once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._all: list[str] = []

    def append(self, word: str) -> None:
        self._all.append(self._known.setdefault(word, word))

    def labels(self) -> np.ndarray | None:
        """Numbers if all of them are, else words; None if there are none."""
        if not self._all:
            return None
        numeric = all(_is_number(word) for word in self._known)
        return np.asarray(self._all, dtype=np.float64 if numeric else object)


def _parse(rows: Iterable[list[str]], path: Path) -> Dataset:
    rows = iter(rows)
    head = next(rows, None)
    second = next(rows, None)
    if head is None:
        raise DataError(f"{path} has no rows; write the samples again.")
    header = head if _is_header(head, second) else None
    body = chain([] if header else [head], [second] if second else [], rows)
    label = _label_column(header, second or head if header else head)
    columns = [c for c in range(len(head)) if c != label]
    if header and header[0].strip() == "":
        columns.remove(0)
    values, labels = _Table(len(columns), str(path)), _Words()
    for count, row in enumerate(body, start=1):
        if len(row) != len(head):
            raise DataError(
                f"{path} has {len(row)} columns in row {count} of the samples, but {len(head)} "
                "before; make all rows one length."
            )
        try:
            values.append([float(row[c]) for c in columns])
        except ValueError:
            column = next(c for c in columns if not _is_number(row[c]))
            name = repr(reason(header[column])) if header else str(column + 1)
            raise DataError(
                f"{path} holds {reason(row[column])!r} in row {count} of the samples, column "
                f"{name}, where a number is expected; correct or remove it."
            ) from None
        if label is not None:
            labels.append(row[label].strip())
    return make_dataset(values.source(), labels.labels(), path.stem)


def _is_header(head: list[str], second: list[str] | None) -> bool:
    if not all(_is_number(cell) for cell in head[:-1]):
        return True
    if head[-1].strip().lower() in LABEL_COLUMNS:
        return True
    # Only the last name is no number: names if numbers follow, otherwise already a label.
    return not _is_number(head[-1]) and second is not None and _is_number(second[-1])


def _label_column(header: list[str] | None, row: list[str]) -> int | None:
    for column, name in enumerate(header or []):
        if name.strip().lower() in LABEL_COLUMNS:
            return column
    return None if _is_number(row[-1]) else len(row) - 1


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
