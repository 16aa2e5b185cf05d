"""Tables, one sample per row: .parquet and .csv files, both read by pyarrow piece by piece.

A column holds numbers or labels; in .parquet, one column of lists may hold the vectors instead.
What does not fit is refused with its row: a missing value never becomes a number, and is never a
reason to take a row for names or a column for labels.
"""

import csv
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kscn.data.base import Source
from kscn.data.dataset import LABEL_COLUMNS, Dataset, make_dataset
from kscn.data.limits import check_bytes, readable
from kscn.data.parts import Parts
from kscn.data.source import ArraySource, FileSource
from kscn.errors import DataError, reason

# Letters in a row of a .csv file: no file without a line end is taken for one row.
_LONGEST_ROW = 2**22
# pyarrow takes some kilobytes for every column of a .csv file.
_MOST_COLUMNS = 50_000
_MISSING = {"", "?", "-", "#N/A", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
# What says of a first row with numbers in it that it holds names; "y" may be an answer.
_NAMES_OF_LABELS = {*LABEL_COLUMNS} - {"y"}


def _says_label(name: str) -> bool:
    return name.strip().lower() in LABEL_COLUMNS


# Parquet ----------------------------------------------------------------------------------------


def open_parquet(path: Path) -> Dataset:
    """Samples of a .parquet file: columns of numbers, or one column of lists of one length.

    Labels are the column called label, labels, y, target or class, otherwise the last column if it
    holds text.
    """
    return make_dataset(parquet_source(path), parquet_labels(path), path.stem)


def parquet_source(path: Path) -> Source:
    """Samples of a .parquet file; one row group at a time is in memory."""
    from pyarrow import compute, types

    file, kinds, _ = _opened(path)
    vectors = len(kinds) == 1 and all(hasattr(kind, "value_field") for kind in kinds.values())
    held = [kind.value_type if vectors else kind for kind in kinds.values()]
    for name, kind in zip(kinds, held, strict=True):
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise DataError(
                f"{path} has a column {reason(name)!r} of {kinds[name]}, where numbers or one "
                "column of lists of numbers are expected; remove it."
            )
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    lengths = [group.num_rows for group in groups]
    if not kinds or min(lengths, default=0) < 0:
        raise DataError(f"{path} has no columns of numbers, or is damaged; check what it holds.")
    width = len(kinds)
    if vectors:
        with readable(path, ".parquet file"):
            rows = file.iter_batches(batch_size=1, columns=list(kinds))
            width = next((len(row.column(0)[0]) for row in rows), 1)
    dtype = np.result_type(*(kind.to_pandas_dtype() for kind in held))
    for group in groups:
        # Lists may be of any length, whatever the first one is.
        values = [group.column(number).num_values for number in range(group.num_columns)]
        size = max(group.num_rows * width, *values) * dtype.itemsize
        check_bytes(f"A row group of {path}", size)
    starts = np.cumsum([0, *lengths])

    def opened(number: int) -> Source:
        with readable(f"Row group {number} of {path}", "table"):
            table = file.read_row_group(number, columns=list(kinds))
            columns = [column.combine_chunks() for column in table.columns]
            bad = np.zeros(len(table), dtype=bool)
            if vectors:
                bad = compute.list_value_length(columns[0]).fill_null(-1).to_numpy() != width
                columns = [columns[0].flatten()]
            if dtype.kind != "f" and not bad.any():  # a missing float becomes NaN
                missing = np.stack([column.is_null() for column in columns], axis=-1)
                bad |= missing.reshape(len(table), width).any(axis=1)
            arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
        if bad.any() or len(table) != lengths[number]:
            raise DataError(
                f"{path} has a missing value, or a list of another length than {width}, in row "
                f"{starts[number] + bad.argmax() + 1}; fill it in or remove the row."
            )
        samples = np.stack(arrays, axis=-1).reshape(-1, width)
        return ArraySource(samples.astype(dtype, copy=False), str(path))

    # Row groups are unpacked whole; small neighbours stay together.
    stretch = starts[:-1] * width * dtype.itemsize // Source.stretch_bytes
    cuts = np.append(starts[:-1][np.diff(stretch, prepend=-1) > 0], starts[-1])
    source = Parts(str(path), lengths, (width,), dtype, opened, cuts, most=1)
    source.columns = () if vectors else list(kinds)
    return source


def parquet_labels(path: Path) -> np.ndarray | None:
    """Labels of a .parquet file, if it has any."""
    file, _, label = _opened(path)
    if label is None:
        return None
    check_bytes(f"The label column of {path}", 8 * file.metadata.num_rows)
    with readable(path, ".parquet file"):
        chunks = file.read(columns=[label]).column(0).chunks
        parts = [
            np.array(_words(chunk), dtype=object)
            if _is_text(chunk.type)
            else chunk.to_numpy(zero_copy_only=False)
            for chunk in chunks
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _opened(path: Path) -> tuple[Any, dict[str, Any], str | None]:
    """The file, the type of each column of numbers by its name, and the name of the labels."""
    from pyarrow import parquet

    with readable(path, ".parquet file"):
        schema = parquet.read_schema(path)
        # A word comes once, not once per row, however often a small file repeats a long one.
        text = [field.name for field in schema if _is_text(field.type)]
        file = parquet.ParquetFile(path, read_dictionary=text)
    if len({*schema.names}) < len(schema.names):
        raise DataError(f"{path} has two columns of one name; rename or remove one.")
    # pandas stores a row index that is not plain counting in columns of this name.
    kinds = {f.name: f.type for f in schema if not f.name.startswith("__index_level_")}
    last = next(reversed(kinds), None)
    last = last if last in text and len(kinds) > 1 else None
    label = next((name for name in kinds if _says_label(name)), last)
    return file, {name: kind for name, kind in kinds.items() if name != label}, label


def _words(chunk: Any) -> list[Any]:
    """The words of a dictionary array, each of which exists once; None for one that is missing."""
    words = [*chunk.dictionary.to_pylist(), None]
    return [words[index] for index in chunk.indices.fill_null(-1).to_pylist()]


def _is_text(kind: Any) -> bool:
    return str(kind) in {"string", "large_string", "string_view"} or hasattr(kind, "index_type")


# Text -------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """What the first rows say about a table."""

    separator: str
    names: list[str]  # of all columns; none if the first row has none
    start: int  # lines up to and with that row
    columns: list[int]  # where the numbers are
    label: int | None  # where the labels are
    width: int  # cells in a row


def open_csv(path: Path, *, longest: int = _LONGEST_ROW) -> Dataset:
    """Samples of a .csv file, as float64, which are kept in a temporary file.

    The separator is a comma, semicolon, tab or blank. A first row of words holds names, and so does
    one that says label, labels, target or class, or that counts the columns from 0 behind an empty
    cell, as pandas writes them. Labels are the column called label, labels, y, target or class,
    otherwise the last column if it holds words. A nameless first column, the row index of pandas,
    is left out. All other columns hold numbers. No row has more than `longest` letters.
    """
    import pyarrow

    layout = _look(path, longest)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the samples
    words: list[str] = []
    count = 0
    try:
        for block in _blocks(path, layout, longest):
            columns = block.columns[: len(layout.columns)]
            file.write(np.stack(columns, axis=1).tobytes())
            if layout.label is not None:
                words += map(str.strip, _words(block.columns[-1]))
            count += block.num_rows
        file.flush()
    except pyarrow.ArrowException as error:
        raise _refused(str(error), layout, path) from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read, or its numbers not be written to {tempfile.gettempdir()} "
            f"({reason(error)}); make room or set TMPDIR to another folder."
        ) from error
    shape = (count, len(layout.columns))
    samples = FileSource(file, 0, shape, np.dtype(np.float64), str(path))
    names = [layout.names[column] for column in layout.columns] if layout.names else []
    samples.columns = [] if all(map(_is_number, names)) else names  # names that merely count
    given = None if layout.label is None else _labels(words, layout.label, layout, path)
    return make_dataset(samples, given, path.stem)


def _look(path: Path, longest: int) -> _Layout:
    """The separator, names and labels, by the first two rows that are not blank."""
    with readable(path, "text table"), path.open(newline="", encoding="utf-8-sig") as stream:
        lines = enumerate(iter(lambda: stream.readline(longest), ""), 1)
        found = [*islice(((n, line.strip("\r\n")) for n, line in lines if line.strip()), 2)]
        (start, first), (_, second) = [*found, (0, ""), (0, "")][:2]
        separator = max(",;\t", key=first.count)
        if separator not in first:  # the name of a single column may have blanks in it
            separator = " " if " " in (second or first).strip() else ","
        head, below = (_cells(line, separator) for line in (first, second))
    names = head if _is_header(head) else []
    sample = below[: len(head)] if names and second else head
    label = next((c for c, name in enumerate(names) if _says_label(name)), None)
    if label is None and _is_word(sample[-1]):
        label = len(sample) - 1
    indexed = bool(names) and not names[0]
    columns = [column for column in range(indexed, len(head)) if column != label]
    if not columns or len(head) > _MOST_COLUMNS:
        raise DataError(
            f"{path} has {len(columns)} columns of numbers, where 1 to {_MOST_COLUMNS} are "
            "expected; check what it holds, or convert so wide a table to .npy."
        )
    return _Layout(separator, names, start if names else 0, columns, label, len(head))


def _cells(line: str, separator: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])] or [""]


def _is_header(cells: list[str]) -> bool:
    """Whether the first row of a table holds names."""
    counting = [str(number) for number in range(len(cells) - 1)]
    if not cells[0] and len(cells) > 1 and cells[1:] == counting:
        return True
    words = all(map(_is_word, cells if cells[0] else cells[1:])) and len(cells[-1]) > 0
    return words or any(cell.lower() in _NAMES_OF_LABELS for cell in cells)


def _is_word(cell: str) -> bool:
    """Whether a cell is no number, in whatever notation (1_000, 5 %), and not missing."""
    return any(map(str.isalpha, cell)) and cell not in _MISSING and not _is_number(cell)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _blocks(path: Path, layout: _Layout, longest: int) -> Iterator[Any]:
    """Record batches: the columns of numbers and, behind them, that of the labels."""
    import pyarrow
    from pyarrow import csv as reading

    every = [str(column) for column in range(layout.width)]
    types = {every[column]: pyarrow.float64() for column in layout.columns}
    if layout.label is not None:
        types[every[layout.label]] = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    with (
        # Of pyarrow's own, or its thread would wait for Python.
        pyarrow.OSFile(os.fsencode(path)) as stream,
        reading.open_csv(
            stream,
            # Without threads, so that a fault names its row.
            reading.ReadOptions(
                use_threads=False, column_names=every, skip_rows=layout.start, block_size=longest
            ),
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
        yield from blocks


def _labels(words: list[str], column: int, layout: _Layout, path: Path) -> np.ndarray:
    """Labels as numbers if all of them are, else as words; none may be missing.

    They are words unless a name says that they are labels.
    """
    named = bool(layout.names) and _says_label(layout.names[column])
    unfit = {word for word in {*words} if word in _MISSING or (not named and _is_number(word))}
    if unfit:
        place = next(place for place, word in enumerate(words) if word in unfit)
        # Rows are counted as pyarrow counts them: from 1, the names too, blank lines not.
        raise _unfit(words[place], place + layout.start + 1, column, "a label", layout, path)
    labels = np.array(words, dtype=object)
    for dtype in (np.int64, np.float64):  # in which large integers would lose digits
        with suppress(ValueError, OverflowError):
            return labels.astype(dtype)
    return labels


def _refused(said: str, layout: _Layout, path: Path) -> DataError:
    """What pyarrow says about a table, in a sentence of ours."""
    cell = re.search(r"column #(\d+): Row #(\d+): .* invalid value '(.*)'", said, re.DOTALL)
    if cell is not None:
        return _unfit(cell[3], int(cell[2]), int(cell[1]), "a number", layout, path)
    said = "a row is too long" if "straddl" in said else reason(said)
    return DataError(f"{path} is not a readable table ({said}); make all rows alike.")


def _unfit(
    cell: str, row: int, column: int, expected: str, layout: _Layout, path: Path
) -> DataError:
    name = repr(reason(layout.names[column])) if layout.names else column + 1
    what = repr(reason(cell)) if cell.strip() else "an empty cell"
    return DataError(
        f"{path} has {what} in row {row}, column {name}, where {expected} is expected; correct it "
        "or remove the row, or call the column label in a first row of names if it holds labels."
    )
