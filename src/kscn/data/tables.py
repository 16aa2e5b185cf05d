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
    import pyarrow.compute
    from pyarrow import types

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
    width, values = len(kinds), 0
    if vectors:
        # Lists may be of any length, whatever the first one is.
        values = max(
            (g.column(n).num_values for g in groups for n in range(g.num_columns)), default=0
        )
        with readable(path, ".parquet file"):
            rows = file.iter_batches(batch_size=1, columns=list(kinds))
            width = next((len(row.column(0)[0]) for row in rows), 1)
    dtype = np.result_type(*(kind.to_pandas_dtype() for kind in held))
    values = max(values, max(lengths, default=0) * width)
    check_bytes(f"A row group of {path}", values * dtype.itemsize)
    starts = np.cumsum([0, *lengths])

    def opened(number: int) -> Source:
        with readable(f"Row group {number} of {path}", "table"):
            table = file.read_row_group(number, columns=list(kinds))
            columns = [column.combine_chunks() for column in table.columns]
            bad = np.zeros(len(table), dtype=bool)
            if vectors:
                counts = pyarrow.compute.list_value_length(columns[0]).fill_null(-1)
                bad = counts.to_numpy() != width
                columns = [columns[0].flatten()]
            for column in columns if dtype.kind != "f" and not bad.any() else []:
                bad = bad | np.asarray(column.is_null()).reshape(len(table), -1).any(axis=1)
            arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
        if bad.any() or len(table) != lengths[number]:
            raise DataError(
                f"{path} has a missing value, or a list of another length than {width}, in row "
                f"{starts[number] + bad.argmax() + 1}; fill it in or remove the row."
            )
        samples = arrays[0].reshape(-1, width) if vectors else np.stack(arrays, axis=1)
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
            _words(c) if _is_text(c.type) else c.to_numpy(zero_copy_only=False) for c in chunks
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


def _words(chunk: Any) -> np.ndarray:
    """The words of a dictionary array, each of which exists once; None for one that is missing."""
    words = np.array([*chunk.dictionary.to_pylist(), None], dtype=object)
    return words[chunk.indices.fill_null(len(words) - 1).to_numpy()]


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
    labels, count = [np.empty(0, dtype=object)], 0
    try:
        for numbers, words in _blocks(path, layout, longest):
            file.write(numbers.tobytes())
            labels.append(_checked(words, count, layout, path))
            count += len(numbers)
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
    given = None if layout.label is None else _numbered(np.concatenate(labels))
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


def _blocks(path: Path, layout: _Layout, longest: int) -> Iterator[tuple[np.ndarray, Any]]:
    """Blocks of rows: numbers (n, d), and labels as they are written."""
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
        for block in blocks:
            numbers = np.empty((block.num_rows, len(layout.columns)))
            for place in range(len(layout.columns)):
                numbers[:, place] = block.column(place).to_numpy()
            yield numbers, block.columns[-1]


def _checked(words: Any, before: int, layout: _Layout, path: Path) -> np.ndarray:
    """The labels of a block: none missing and, unless a name says that they are labels, words."""
    if layout.label is None:
        return np.empty(0, dtype=object)
    known = [word.strip() for word in words.dictionary.to_pylist()]
    named = layout.label < len(layout.names) and _says_label(layout.names[layout.label])
    for number, word in enumerate(known):
        if word in _MISSING or (not named and _is_number(word)):
            # Rows are counted as pyarrow counts them: from 1, the names too, blank lines not.
            row = before + layout.start + 1 + int(np.argmax(words.indices.to_numpy() == number))
            raise _unfit(word, row, layout.label, "a label", layout, path)
    return np.array(known, dtype=object)[words.indices.to_numpy()]


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


def _numbered(words: np.ndarray) -> np.ndarray:
    """Labels as numbers if all of them are, else as words."""
    for kind, dtype in ((int, np.int64), (float, np.float64)):  # large ones would lose digits
        with suppress(ValueError, OverflowError):
            numbers = {word: dtype(kind(word)) for word in set(words)}
            return np.array([numbers[word] for word in words], dtype=dtype)
    return words
