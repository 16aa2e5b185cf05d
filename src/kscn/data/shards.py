"""A folder of .npy or .parquet files as one source: the files in the order of their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from kscn.data.base import Source
from kscn.data.chain import ChainedSource
from kscn.data.dataset import LABEL_NAMES, Dataset, make_dataset
from kscn.data.limits import check_regular
from kscn.data.numpyfiles import npy_source, read_npy
from kscn.data.parquet import parquet_source
from kscn.errors import DataError

# Files that are open at a time: enough for a batch over a border, few beside any limit of a system.
_OPEN = 4


class Shard(Source):
    """One file of many, opened when it is read and closed when others have been read since."""

    on_disk = True

    def __init__(self, path: Path, opened: Source, reopen: Callable[[Path], Source]) -> None:
        super().__init__(str(path), len(opened), opened.shape, opened.dtype)
        self._path, self._reopen = path, reopen
        self._cuts = opened.stretches()

    def stretches(self) -> np.ndarray | None:
        """Cuts as they were when the file was first opened."""
        return self._cuts

    def _blocks(self, start: int, stop: int, size: int) -> Iterator[tuple[int, np.ndarray]]:
        return self._opened().batches(size, start, stop)

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
    return path.suffix.lower() in (".npy", ".parquet") and not path.name.startswith(".")


def is_samples(shard: Path) -> bool:
    """Whether a shard holds samples, not the labels of all of them, as labels.npy or y.npy does."""
    return shard.suffix.lower() != ".npy" or shard.stem.lower() not in LABEL_NAMES


def open_shards(folder: Path, files: list[Path]) -> Dataset:
    """The samples of several files of one kind, which are alike in shape and type."""
    suffixes = {file.suffix.lower() for file in files}
    if len(suffixes) > 1:
        raise DataError(
            f"{folder} has both .npy and .parquet files; keep the samples in files of one kind."
        )
    files = sorted(files)
    for file in files:
        check_regular(file)
    open_all = _npy_shards if suffixes == {".npy"} else _parquet_shards
    shards, labels = open_all(files)
    first = shards[0]
    for shard in shards:
        if (shard.shape, shard.dtype) != (first.shape, first.dtype):
            raise DataError(
                f"{shard.name} has samples of shape {shard.shape} and type {shard.dtype}, but "
                f"{first.name} has {first.shape} and {first.dtype}; make them alike."
            )
    return make_dataset(ChainedSource(shards, str(folder)), labels, folder.resolve().name)


def _npy_shards(files: list[Path]) -> tuple[list[Shard], np.ndarray | None]:
    reopen = lru_cache(maxsize=_OPEN)(npy_source)
    shards = [Shard(file, npy_source(file), reopen) for file in files if is_samples(file)]
    labels = next((read_npy(file) for file in files if not is_samples(file)), None)
    return shards, labels


def _parquet_shards(files: list[Path]) -> tuple[list[Shard], np.ndarray | None]:
    @lru_cache(maxsize=_OPEN)
    def reopen(path: Path) -> Source:
        return parquet_source(path, with_labels=False)[0]

    shards, labels = [], []
    for file in files:
        source, given = parquet_source(file)
        shards.append(Shard(file, source, reopen))
        if given is not None:
            labels.append(given)
    if labels and len(labels) < len(files):
        raise DataError(
            f"Only {len(labels)} of the {len(files)} files in {files[0].parent} have labels; give "
            "all of them a label column, or none."
        )
    return shards, np.concatenate(labels) if labels else None
