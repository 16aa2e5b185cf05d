"""A folder of .npy or .parquet files as one source: the files in the order of their names."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kscn.data.base import Source
from kscn.data.chain import ChainedSource
from kscn.data.dataset import LABEL_NAMES, Dataset, make_dataset
from kscn.data.limits import check_regular
from kscn.data.numpyfiles import npy_source, read_npy
from kscn.data.parquet import parquet_source
from kscn.errors import DataError

SUFFIXES = (".npy", ".parquet")
# Files that are open at a time: enough for a batch over a border, few beside any limit of a system.
_OPEN = 4


class Shard(Source):
    """One file of many, opened when it is read and closed when others have been read since."""

    on_disk = True

    def __init__(self, path: Path, opened: Source, reopen: Callable[[Path], Source]) -> None:
        super().__init__(str(path), len(opened), opened.shape, opened.dtype)
        self._path = path
        self._cuts = opened.stretches()
        self._reopen = reopen

    def batches(self, *args: Any, **options: Any) -> Any:
        """Consecutive blocks in order, as the file's own source reads them."""
        return self._opened().batches(*args, **options)

    def stretches(self) -> np.ndarray | None:
        """Cuts as they were when the file was first opened."""
        return self._cuts

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self._opened()[start:stop]

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        return self._opened().take(rows)

    def _opened(self) -> Source:
        opened = self._reopen(self._path)
        if (len(opened), opened.shape, opened.dtype) != (len(self), self.shape, self.dtype):
            raise DataError(f"{self.name} changed since it was opened; open the folder again.")
        return opened


def is_shard(path: Path) -> bool:
    """Whether a file in a folder is named like a shard."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def is_samples(shard: Path) -> bool:
    """Whether a shard holds samples, not the labels of all of them."""
    return shard.suffix.lower() != ".npy" or shard.stem.lower() not in LABEL_NAMES


def open_shards(folder: Path, files: list[Path]) -> Dataset:
    """The samples of several files of one kind, one file after the other in the order of names.

    Parameters
    ----------
    folder : Path
        What the samples are called after.
    files : list of Path
        .npy files, of which one called labels.npy (or y.npy) may hold the labels of all samples;
        or .parquet files, whose labels are in a column as in a single file.

    Raises
    ------
    DataError
        If the files are of two kinds, or differ in the shape or type of their samples.
    """
    suffixes = {file.suffix.lower() for file in files}
    if len(suffixes) > 1:
        raise DataError(
            f"{folder} has both .npy and .parquet files; keep the samples in files of one kind."
        )
    files = sorted(files)
    for file in files:
        check_regular(file)
    if suffixes == {".npy"}:
        shards = _shards([file for file in files if is_samples(file)], npy_source, npy_source)
        labels_files = [file for file in files if not is_samples(file)]
        labels = read_npy(labels_files[0]) if labels_files else None
    else:
        shards, labels = _parquet_shards(files)
    return make_dataset(ChainedSource(shards, str(folder)), labels, folder.resolve().name)


def _parquet_shards(files: list[Path]) -> tuple[list[Shard], np.ndarray | None]:
    labels: list[np.ndarray] = []

    def open_with_labels(path: Path) -> Source:
        source, given = parquet_source(path)
        if given is not None:
            labels.append(given)
        return source

    def reopen(path: Path) -> Source:
        return parquet_source(path, labels=False)[0]

    shards = _shards(files, open_with_labels, reopen)
    if labels and len(labels) < len(files):
        raise DataError(
            f"Only {len(labels)} of the {len(files)} files in {files[0].parent} have labels; give "
            "all of them a label column, or none."
        )
    return shards, np.concatenate(labels) if labels else None


def _shards(
    files: list[Path], look: Callable[[Path], Source], reopen: Callable[[Path], Source]
) -> list[Shard]:
    """Files as shards: all are looked at now, and opened again when they are read."""
    reopen = lru_cache(maxsize=_OPEN)(reopen)
    shards = [Shard(file, look(file), reopen) for file in files]
    first = shards[0]
    for shard in shards:
        if (shard.shape, shard.dtype) != (first.shape, first.dtype):
            raise DataError(
                f"{shard.name} has samples of shape {shard.shape} and type {shard.dtype}, but "
                f"{first.name} has {first.shape} and {first.dtype}; make them alike."
            )
    return shards
