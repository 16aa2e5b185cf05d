"""Tables, one sample per row: .csv (read to memory) and .parquet (read by row group)."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kscn.data.arrays import ArraySource
from kscn.data.base import Source
from kscn.data.dataset import Dataset, make_dataset, reason, require
from kscn.errors import DataError

_LABEL_COLUMNS = {"label", "labels", "y", "target", "class"}


def open_csv(path: Path) -> Dataset:
    """Samples of a .csv file, as float64 in memory.

    The separator is a comma, semicolon or tab. A first line of names is recognised by not being
    numeric. Labels are the column called label, labels, y, target or class, otherwise the last
    column if it is not numeric. A nameless first column, the row index that pandas writes, is left
    out.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            first_line = stream.readline()
            stream.seek(0)
            separator = max(",;\t", key=first_line.count)
            rows = (row for row in csv.reader(stream, delimiter=separator) if row)
            return _parse(rows, path)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a text table ({reason(error)}); check what it holds."
        ) from error


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
    values = np.empty((1024, len(columns)))
    labels: list[str] = []
    count = 0
    for count, row in enumerate(body, start=1):
        if len(row) != len(head):
            raise DataError(
                f"{path} has {len(row)} columns in row {count} of the samples, but {len(head)} "
                "before; make all rows one length."
            )
        if count > len(values):
            values.resize((2 * len(values), len(columns)), refcheck=False)
        try:
            values[count - 1] = [float(row[c]) for c in columns]
        except ValueError:
            column = next(c for c in columns if not _is_number(row[c]))
            name = repr(header[column]) if header else str(column + 1)
            raise DataError(
                f"{path} holds {row[column]!r} in row {count} of the samples, column {name}, where "
                "a number is expected; correct or remove it."
            ) from None
        if label is not None:
            labels.append(row[label].strip())
    source = ArraySource(values[:count], str(path))
    return make_dataset(source, _words_or_numbers(labels), path.stem)


def _is_header(head: list[str], second: list[str] | None) -> bool:
    if not all(_is_number(cell) for cell in head[:-1]):
        return True
    if head[-1].strip().lower() in _LABEL_COLUMNS:
        return True
    # Only the last name is no number: names if numbers follow, otherwise already a label.
    return not _is_number(head[-1]) and second is not None and _is_number(second[-1])


def _label_column(header: list[str] | None, row: list[str]) -> int | None:
    for column, name in enumerate(header or []):
        if name.strip().lower() in _LABEL_COLUMNS:
            return column
    return None if _is_number(row[-1]) else len(row) - 1


def _words_or_numbers(labels: list[str]) -> np.ndarray | None:
    if not labels:
        return None
    numeric = all(_is_number(label) for label in labels)
    return np.asarray(labels, dtype=np.float64 if numeric else str)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class ParquetSource(Source):
    """Samples of a .parquet file; one row group at a time is in memory.

    A batch of scattered rows reads every row group that it touches: to shuffle a large file often,
    convert it to .npy first.
    """

    def __init__(self, file: Any, columns: list[str], name: str) -> None:
        types = [file.schema_arrow.field(column).type for column in columns]
        self._file, self._columns = file, columns
        if len(columns) == 1 and hasattr(types[0], "list_size"):
            width, types = types[0].list_size, [types[0].value_type]
        else:
            width = len(columns)
        for column, kind in zip(columns, types, strict=False):
            if np.dtype(_numpy_type(kind)).kind not in "biuf":
                raise DataError(
                    f"{name} has a column {column!r} of {kind}, where numbers or one list of fixed "
                    "size are expected; remove it."
                )
        dtype = np.result_type(*(_numpy_type(kind) for kind in types))
        counts = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        self._starts = np.cumsum([0, *counts])
        super().__init__(name, int(self._starts[-1]), (width,), dtype)
        self._cached: tuple[int, np.ndarray] | None = None

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self._gather(np.arange(start, stop))

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        for group in np.unique(groups):
            here = groups == group
            out[here] = self._group(int(group))[rows[here] - self._starts[group]]
        return out

    def _group(self, group: int) -> np.ndarray:
        # Consecutive batches mostly stay within one group, so the last one is kept.
        if self._cached is None or self._cached[0] != group:
            self._cached = None
            self._cached = (group, self._decode(group))
        return self._cached[1]

    def _decode(self, group: int) -> np.ndarray:
        length = int(self._starts[group + 1] - self._starts[group])
        try:
            table = self._file.read_row_group(group, columns=self._columns)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.name} is damaged in row group {group} ({reason(error)}); write it again."
            ) from error
        columns = [column.combine_chunks() for column in table.columns]
        if hasattr(columns[0].type, "list_size"):
            columns = [columns[0].flatten()]
        nulls = sum(column.null_count for column in columns)
        values = [column.to_numpy(zero_copy_only=False) for column in columns]
        size = length * self.shape[0]
        if sum(map(len, values)) != size or (nulls and self.dtype.kind != "f"):
            raise DataError(f"{self.name} has missing values in row group {group}; fill them in.")
        if len(values) == 1:
            return values[0].astype(self.dtype, copy=False).reshape(length, *self.shape)
        return np.stack(values, axis=1, dtype=self.dtype, casting="unsafe")


def open_parquet(path: Path) -> Dataset:
    """Samples of a .parquet file: numeric columns, or one column of lists of fixed size.

    Labels are the column called label, labels, y, target or class, otherwise the last column if it
    holds text.
    """
    parquet = require("pyarrow.parquet", "parquet", ".parquet files")
    try:
        file = parquet.ParquetFile(path)
        # pandas stores a row index that is not plain counting in columns of this name.
        names = [n for n in file.schema_arrow.names if not n.startswith("__index_level_")]
        label = next((name for name in names if name.lower() in _LABEL_COLUMNS), None)
        if label is None and len(names) > 1 and _is_text(file.schema_arrow.field(names[-1]).type):
            label = names[-1]
        columns = [name for name in names if name != label]
        if not columns:
            raise DataError(f"{path} has no columns of samples; write the file again.")
        source = ParquetSource(file, columns, str(path))
        labels = None if label is None else file.read(columns=[label]).column(0).to_pylist()
    # pyarrow's own errors are subclasses of ValueError or OSError.
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} is no readable .parquet file ({reason(error)}); check it."
        ) from error
    return make_dataset(source, labels, path.stem)


def _is_text(kind: Any) -> bool:
    return str(kind) in {"string", "large_string", "string_view"} or hasattr(kind, "index_type")


def _numpy_type(kind: Any) -> Any:
    """The numpy type of a column's values; object for what has none (text, lists, dates)."""
    try:
        return kind.to_pandas_dtype()
    except NotImplementedError:
        return np.object_
