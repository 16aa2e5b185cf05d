"""What the features of a table are called, where its file says so."""

from __future__ import annotations

import csv
from pathlib import Path

_LABELS = {"label", "labels", "y", "target", "class"}


def feature_names(source: str, width: int) -> list[str]:
    """Names of `width` features: those of a .csv or .parquet file, else "feature 0", ...

    Parameters
    ----------
    source : str
        Where the samples are from: a path, or the name of a data set.
    width : int
        Numbers per sample.
    """
    header = _header(Path(source).expanduser())
    names = [name for name in header if name.strip().lower() not in _LABELS]
    if len(names) == width + 1:
        # A nameless first column is a row index; otherwise the last one holds labels in words.
        names = names[1:] if not names[0].strip() else names[:-1]
    if len(names) != width or all(_is_number(name) for name in names):
        return [f"feature {i}" for i in range(width)]
    return [name.strip() or f"feature {i}" for i, name in enumerate(names)]


def _header(path: Path) -> list[str]:
    """The first row of a table, empty for anything that cannot be read as one."""
    try:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet

            names = pyarrow.parquet.read_schema(path).names
            return [name for name in names if not name.startswith("__index_level_")]
        if path.suffix.lower() == ".csv":
            with path.open(newline="", encoding="utf-8-sig") as stream:
                line = stream.readline()
            return next(csv.reader([line], delimiter=max(",;\t", key=line.count)), [])
    except (OSError, ValueError, ImportError, csv.Error):
        pass
    return []


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
