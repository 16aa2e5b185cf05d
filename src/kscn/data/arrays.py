"""Samples in an array: in memory, or mapped from a file whose pages are given back."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from kscn.data.base import Source, even_cuts, length_and_shape

# Resident pages of a memory map count as memory of the process; this many bytes may stay.
_RELEASE_BYTES = 32 * 2**20
# A page fault also maps neighbouring pages of the page cache: up to one huge page on Linux.
_FAULT_BYTES = 2 * 2**20


class ArraySource(Source):
    """Samples in an array in memory; blocks are views of it."""

    def __init__(self, array: np.ndarray, name: str) -> None:
        super().__init__(name, *length_and_shape(array, name), array.dtype)
        self._array = array

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self._array[start:stop]

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        return self._array[rows]

    def take(self, indices: Any) -> np.ndarray:
        """The rows `indices`, in that order; memory needs no sorted reading."""
        return self._array[self._rows(indices)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False and dtype is not None and np.dtype(dtype) != self.dtype:
            raise ValueError(f"{self.name} is {self.dtype}; as {np.dtype(dtype)} it must be copied")
        return self._array.astype(self.dtype if dtype is None else dtype, copy=bool(copy))


class MappedSource(ArraySource):
    """Samples in a memory map or a view of one; pages already read are given back."""

    on_disk = True

    def __init__(self, array: np.ndarray, name: str) -> None:
        # A plain ndarray slices several times faster than the memmap subclass.
        super().__init__(np.asarray(array), name)
        mapping = shared_mapping(array)
        assert mapping is not None, "no map, or one whose pages must not be given back"
        self._mmap = mapping
        self._origin = np.frombuffer(mapping, dtype=np.uint8).ctypes.data

    def stretches(self) -> np.ndarray | None:
        """Even cuts: neighbours share pages, and a disk likes to read on."""
        return even_cuts(len(self), self.row_bytes)

    def take(self, indices: Any) -> np.ndarray:
        """The rows `indices`, in that order, read from front to back."""
        return Source.take(self, indices)

    def _blocks(self, start: int, stop: int, size: int) -> Iterator[tuple[int, np.ndarray]]:
        kept = end = start
        try:
            for first, block in super()._blocks(start, stop, size):
                yield first, block
                end = first + len(block)
                if (end - kept) * self.row_bytes >= _RELEASE_BYTES:
                    self._release(kept, end)
                    kept = end
        finally:
            self._release(kept, end)

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        # Scattered rows keep a whole fault window each, dense ones only what lies between them.
        gaps = np.diff(rows, prepend=rows[:1]) * self.row_bytes
        resident = np.cumsum(np.minimum(gaps, _FAULT_BYTES + self.row_bytes))
        cuts = np.flatnonzero(np.diff(resident // _RELEASE_BYTES)) + 1
        for part in np.split(np.arange(len(rows)), cuts):
            if len(part):
                out[part[0] : part[-1] + 1] = self._array[rows[part]]
                self._release(rows[part[0]], rows[part[-1]] + 1)
        return out

    def _release(self, start: int, stop: int) -> None:
        """Give back the pages of rows `start` to `stop`; a later access reads them again.

        Only theirs: looking for pages in all of the map takes time that grows with its size.
        """
        if stop <= start or not hasattr(mmap, "MADV_DONTNEED"):
            return
        low, high = _byte_bounds(self._array[start:stop])
        # Neighbours that faults mapped along are given back too, or scattered reads pile them up.
        first = max(0, low - self._origin - _FAULT_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
        length = min(len(self._mmap), high - self._origin + _FAULT_BYTES) - first
        if length > 0:
            self._mmap.madvise(mmap.MADV_DONTNEED, first, length)


def _byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """First and last-plus-one address of an array's values, for any strides."""
    low = high = array.ctypes.data
    for length, stride in zip(array.shape, array.strides, strict=True):
        reach = (length - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + array.itemsize


def shared_mapping(array: Any) -> mmap.mmap | None:
    """The file mapping beneath an array or view, unless it is private (copy-on-write).

    Giving the pages of a private one back would lose what was written to them.
    """
    while isinstance(array, np.ndarray):
        mapping: mmap.mmap | None = getattr(array, "_mmap", None)
        if isinstance(array, np.memmap) and mapping is not None:
            return None if array.mode == "c" else mapping
        array = array.base
    return None
