"""Samples in parts that follow one another: the row groups of a file, the files of a folder.

A part is opened when it is read and closed when others have been read since, so that neither the
memory nor the number of open files grows with the number of parts.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

import numpy as np

from kscn.data.base import Source
from kscn.errors import DataError

# Files that are open at a time: enough for a batch over a border, few beside any limit of a system.
_OPEN = 4


class Parts(Source):
    """Parts of the given lengths; `opened(number)` is one of them, and `most` are kept at a time.

    `cuts` are where stretches end (see `Source.stretches`).
    """

    on_disk = True

    def __init__(
        self,
        name: str,
        lengths: Sequence[int],
        shape: tuple[int, ...],
        dtype: np.dtype,
        opened: Callable[[int], Source],
        cuts: np.ndarray,
        most: int = _OPEN,
    ) -> None:
        super().__init__(name, (sum(lengths), *shape), dtype)
        self._starts = np.cumsum([0, *lengths])
        self._opened, self._cuts, self._most = opened, cuts, most
        self._kept: dict[int, Source] = {}
        self._lock = Lock()  # batches may be read ahead in the background

    def stretches(self) -> np.ndarray | None:
        """The cuts of all parts, and those between them."""
        return self._cuts

    def _part(self, number: int) -> Source:
        with self._lock:
            if number not in self._kept:
                if len(self._kept) == self._most:  # before the next one takes memory
                    del self._kept[next(iter(self._kept))]
                self._kept[number] = self._opened(number)
            return self._kept[number]

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        # Rows ascend, so those of a part are neighbours here.
        borders = np.searchsorted(rows, self._starts)
        for part in np.flatnonzero(np.diff(borders)).tolist():
            here = slice(borders[part], borders[part + 1])
            out[here] = self._part(part)._gather(rows[here] - self._starts[part])
        return out


def chained(open_one: Callable[[Path], Source], files: Sequence[Path], name: str) -> Parts:
    """The samples in some files, one after the other: looked at now and opened again when read."""
    first = open_one(files[0])
    cuts, lengths = [np.zeros(1, dtype=np.intp)], list[int]()
    for file in files:
        part = open_one(file)
        if (part.shape, part.dtype) != (first.shape, first.dtype):
            raise DataError(
                f"{file} has samples of shape {part.shape} and type {part.dtype}, but {files[0]} "
                f"has {first.shape} and {first.dtype}; make them alike."
            )
        cuts.append(part.stretches()[1:] + cuts[-1][-1])  # type: ignore[index]
        lengths.append(len(part))

    def opened(number: int) -> Source:
        part, length = open_one(files[number]), lengths[number]
        if (len(part), part.shape, part.dtype) != (length, first.shape, first.dtype):
            raise DataError(f"{part.name} changed since it was opened; open the folder again.")
        return part

    return Parts(name, lengths, first.shape, first.dtype, opened, np.concatenate(cuts))
