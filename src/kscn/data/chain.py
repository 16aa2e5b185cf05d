"""Several sources of one shape and type, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kscn.data.base import Source
from kscn.errors import InputError


class ChainedSource(Source):
    """Sources of one shape and type, one after the other."""

    def __init__(self, parts: Sequence[Source], name: str) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        self.on_disk = any(part.on_disk for part in parts)
        super().__init__(name, int(self._starts[-1]), parts[0].shape, parts[0].dtype)

    def batches(
        self, batch_size: int, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Consecutive blocks in order; those within a part are read as the part reads its own."""
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1.")
        low, last, _ = slice(start, stop).indices(len(self))
        while low < last:
            part = int(np.searchsorted(self._starts, low, side="right")) - 1
            origin, end = int(self._starts[part]), int(self._starts[part + 1])
            high = last if last <= end else low + (end - low) // batch_size * batch_size
            if high > low:
                for first, block in self._parts[part].batches(
                    batch_size, low - origin, high - origin
                ):
                    yield first + origin, block
            else:  # a block over the border
                high = min(low + batch_size, last)
                yield low, self._gather(np.arange(low, high))
            low = high

    def stretches(self) -> np.ndarray | None:
        """The cuts of all parts, and those between them."""
        found = [part.stretches() for part in self._parts]
        cuts = [c[:-1] + start for c, start in zip(found, self._starts, strict=False)
                if c is not None]  # fmt: skip
        return np.append(np.concatenate(cuts), len(self)) if len(cuts) == len(found) else None

    def _read(self, start: int, stop: int) -> np.ndarray:
        part = int(np.searchsorted(self._starts, start, side="right")) - 1
        if part < len(self._parts) and stop <= self._starts[part + 1]:
            origin = int(self._starts[part])
            return self._parts[part][start - origin : stop - origin]
        return self._gather(np.arange(start, stop))

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        # Rows ascend, so those of a part are neighbours here.
        borders = np.searchsorted(rows, self._starts)
        for part in np.flatnonzero(np.diff(borders)).tolist():
            here = slice(borders[part], borders[part + 1])
            out[here] = self._parts[part].take(rows[here] - self._starts[part])
        return out
