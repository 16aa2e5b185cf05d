"""Samples in parts that follow one another: row groups of a file, or whole sources."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from kscn.data.base import Source


class PartedSource(Source):
    """Samples in parts of the given lengths; a part is an array or a source."""

    def __init__(
        self, name: str, lengths: Iterable[int], shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self._starts = np.cumsum([0, *lengths])
        super().__init__(name, int(self._starts[-1]), shape, dtype)

    @abstractmethod
    def _part(self, number: int) -> Any:
        """One of the parts."""

    def _place(self, row: int) -> tuple[int, int, int]:
        """The part that a row is in, with the rows where that begins and ends."""
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        return part, int(self._starts[part]), int(self._starts[part + 1])

    def _read(self, start: int, stop: int) -> np.ndarray:
        if start < stop:
            part, begin, end = self._place(start)
            if stop <= end:
                return self._part(part)[start - begin : stop - begin]
        return self._gather(np.arange(start, stop))

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        # Rows ascend, so those of a part are neighbours here.
        borders = np.searchsorted(rows, self._starts)
        for part in np.flatnonzero(np.diff(borders)).tolist():
            here = slice(borders[part], borders[part + 1])
            out[here] = self._part(part)[rows[here] - self._starts[part]]
        return out


class ChainedSource(PartedSource):
    """Sources of one shape and type, one after the other."""

    def __init__(self, parts: Sequence[Source], name: str) -> None:
        super().__init__(name, map(len, parts), parts[0].shape, parts[0].dtype)
        self._parts = parts
        self.on_disk = any(part.on_disk for part in parts)

    def stretches(self) -> np.ndarray | None:
        """The cuts of all parts, and those between them."""
        cuts = []
        for part, start in zip(self._parts, self._starts, strict=False):
            found = part.stretches()
            if found is None:
                return None
            cuts.append(found[:-1] + start)
        return np.append(np.concatenate(cuts), len(self))

    def _part(self, number: int) -> Source:
        return self._parts[number]

    def _blocks(self, start: int, stop: int, size: int) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks within a part as the part reads its own, which may give memory back."""
        while start < stop:
            part, begin, end = self._place(start)
            high = stop if stop <= end else start + (end - start) // size * size
            if high > start:
                for first, block in self._parts[part].batches(size, start - begin, high - begin):
                    yield first + begin, block
            else:  # a block over the border
                high = min(start + size, stop)
                yield start, self._gather(np.arange(start, high))
            start = high
