"""Tables in .parquet files, one sample per row; one row group at a time is in memory."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from kscn.data.base import STRETCH_BYTES
from kscn.data.chain import PartedSource
from kscn.data.dataset import LABEL_COLUMNS, Dataset, make_dataset
from kscn.data.limits import check_bytes, readable
from kscn.errors import DataError, reason
from kscn.extras import require


class ParquetSource(PartedSource):
    """Samples of a .parquet file, whose parts are its row groups."""

    on_disk = True

    def __init__(self, file: Any, columns: dict[str, Any], name: str) -> None:
        types = list(columns.values())
        self._file, self._columns = file, list(columns)
        if len(columns) == 1 and hasattr(types[0], "list_size"):
            width, types = types[0].list_size, [types[0].value_type]
        else:
            width, self.columns = len(columns), list(columns)
        for column, kind in zip(columns, types, strict=False):
            if np.dtype(_numpy_type(kind)).kind not in "biuf":
                raise DataError(
                    f"{name} has a column {column!r} of {kind}, where numbers or one list of fixed "
                    "size are expected; remove it."
                )
        dtype = np.result_type(*(_numpy_type(kind) for kind in types))
        lengths = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        if min(lengths, default=0) < 0:
            raise DataError(f"{name} has a damaged row group; write the file again.")
        check_bytes(f"A row group of {name}", max(lengths, default=0) * width * dtype.itemsize)
        super().__init__(name, lengths, (width,), dtype)
        self._cached: tuple[int, np.ndarray] | None = None
        self._lock = Lock()  # batches may be read ahead in the background

    def stretches(self) -> np.ndarray | None:
        """Cuts between row groups, which are unpacked whole; small neighbours stay together."""
        rows = max(1, STRETCH_BYTES // self.row_bytes)
        begins = self._starts[:-1]
        return np.append(begins[np.diff(begins // rows, prepend=-1) > 0], len(self))

    def _part(self, number: int) -> np.ndarray:
        with self._lock:
            # Consecutive batches mostly stay within one group, so the last one is kept.
            if self._cached is None or self._cached[0] != number:
                self._cached = None  # or two would be in memory
                self._cached = (number, self._decode(number))
            return self._cached[1]

    def _decode(self, group: int) -> np.ndarray:
        length = int(self._starts[group + 1] - self._starts[group])
        with readable(f"Row group {group} of {self.name}", "table"):
            table = self._file.read_row_group(group, columns=self._columns)
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
    source, labels = parquet_source(path)
    return make_dataset(source, labels, path.stem)


def parquet_source(path: Path, with_labels: bool = True) -> tuple[ParquetSource, np.ndarray | None]:
    """Samples of a .parquet file, and its labels where it has them and they are wanted."""
    parquet = require("pyarrow.parquet", "parquet", "reading .parquet files")
    with readable(path, ".parquet file"):
        file = parquet.ParquetFile(path)
        columns = _columns(file.schema_arrow, path)
        label = next((name for name in columns if name.lower() in LABEL_COLUMNS), None)
        last = list(columns)[-1] if len(columns) > 1 else None
        if label is None and last is not None and _is_text(columns[last]):
            label = last
        kind = None if label is None else columns.pop(label)
        if not columns:
            raise DataError(f"{path} has no columns of numbers; check what it holds.")
        source = ParquetSource(file, columns, str(path))
        if label is None or not with_labels:
            return source, None
        # A word comes once, not once per row, however often a small file repeats a long one.
        text = [label] if _is_text(kind) else None
        return source, _read_labels(parquet.ParquetFile(path, read_dictionary=text), label, path)


def _columns(schema: Any, path: Path) -> dict[str, Any]:
    """The type of each column by its name."""
    columns = {}
    for field in schema:
        # pandas stores a row index that is not plain counting in columns of this name.
        if field.name.startswith("__index_level_"):
            continue
        if field.name in columns:
            raise DataError(
                f"{path} has two columns called {reason(field.name)!r}; rename or remove one."
            )
        columns[field.name] = field.type
    return columns


def _read_labels(file: Any, label: str, path: Path) -> np.ndarray:
    check_bytes(f"The label column of {path}", 8 * file.metadata.num_rows)
    parts = []
    for chunk in file.read(columns=[label]).column(0).chunks:
        if hasattr(chunk.type, "index_type"):
            words = np.array([*chunk.dictionary.to_pylist(), None], dtype=object)
            # A missing label points at the None behind the words.
            parts.append(words[chunk.indices.fill_null(len(words) - 1).to_numpy()])
        else:
            plain = chunk.to_numpy(zero_copy_only=False)
            parts.append(plain if plain.dtype.kind in "biuf" else plain.astype(object))
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _is_text(kind: Any) -> bool:
    return str(kind) in {"string", "large_string", "string_view"} or hasattr(kind, "index_type")


def _numpy_type(kind: Any) -> Any:
    """The numpy type of a column's values; object for what has none (text, lists, dates)."""
    try:
        return kind.to_pandas_dtype()
    except NotImplementedError:
        return np.object_
