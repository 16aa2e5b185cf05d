"""What steps make of samples, as a `Source`, so that everything linear works on it unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from kscn.data import Source, as_source
from kscn.data.shuffle import read_ahead
from kscn.data.source import OnDevice
from kscn.nn.rows import block_rows, through
from kscn.nn.scaling import check_finite
from kscn.runtime.blocks import as_stored

# What is made of the samples of a process is kept up to this size; more is made whenever read.
KEEP_BYTES = 2**30
# Read from a disk at once, however small the blocks themselves.
READ_BYTES = 8 * 2**20


class Lazy(OnDevice):
    """Samples put through steps whenever they are read, on the device of the steps.

    Parameters
    ----------
    source : Source
        The samples as they are stored; those that are no numbers are refused.
    steps : iterable of nn.Module
        Applied one after the other, such that no sample's result depends on the others.
    device : torch.device
        Where the steps are.
    shape : tuple of int, optional
        Of one sample as the first step takes it.
    width : int, optional
        Of the vectors that are made; found out if it is not known.
    name : str
        What is made, for messages.
    """

    def __init__(
        self,
        source: Source,
        steps: Iterable[nn.Module],
        device: torch.device,
        shape: tuple[int, ...] | None = None,
        width: int | None = None,
        name: str = "the features",
    ) -> None:
        self._source, self._steps, self.device = source, list(steps), device
        self._shape = source.shape if shape is None else shape
        self._at_once = block_rows(self._shape)
        if width is None:
            width = self._made(torch.zeros(1, *self._shape, device=device)).shape[1]
        name = f"{name} of {source.name}"
        super().__init__(name, (len(source), width), np.dtype(np.float32))

    def tensor(self, start: int, stop: int) -> Tensor:
        """What is made of the samples `start` to `stop`."""
        return self._collected(stop - start, self._in_order(start, stop))

    def tensor_of(self, rows: np.ndarray) -> Tensor:
        """What is made of the given samples."""
        few = (rows[low : low + self._at_once] for low in range(0, len(rows), self._at_once))
        if self._there is not None:
            return self._collected(len(rows), map(self._there.tensor_of, few))
        return self._collected(
            len(rows), (self._checked(self._source.take(some), some) for some in few)
        )

    def all(self) -> Tensor:
        """What is made of all samples."""
        return self.tensor(0, len(self))

    def _collected(self, n: int, batches: Iterable[Tensor]) -> Tensor:
        out, low = torch.empty(n, *self.shape, device=self.device), 0
        for batch in batches:
            out[low : low + len(batch)] = self._made(batch)
            low += len(batch)
        return out

    def _in_order(self, start: int, stop: int) -> Iterator[Tensor]:
        if self._there is not None:
            for low in range(start, stop, self._at_once):
                yield self._there.tensor(low, min(low + self._at_once, stop))
            return
        for first, rows in in_order(self._source, self._at_once, start, stop):
            yield self._checked(rows, first)

    @property
    def _there(self) -> OnDevice | None:
        """The source, if its samples come to be where the steps are."""
        source = self._source
        return source if isinstance(source, OnDevice) and source.device == self.device else None

    def _checked(self, rows: np.ndarray, numbers: int | np.ndarray) -> Tensor:
        # Here and not by what is made: a ReLU can turn infinity into zero.
        check_finite(rows, self._source.name, numbers)
        return as_stored(rows, self.device)

    def _made(self, batch: Tensor) -> Tensor:
        return through(self._steps, batch.reshape(len(batch), *self._shape))


def kept(lazy: Lazy, most_bytes: int = KEEP_BYTES) -> Source:
    """The same in memory, if it fits."""
    if len(lazy) * lazy.row_bytes > most_bytes:
        return lazy
    return as_source(lazy.all(), name=lazy.name)


def in_order(
    source: Source, rows: int, start: int, stop: int, read_bytes: int = READ_BYTES
) -> Iterator[tuple[int, np.ndarray]]:
    """Samples `start` to `stop` in blocks of so many; a file is read ahead in larger ones."""
    together = rows * max(1, read_bytes // (rows * source.row_bytes))
    if not source.on_disk or stop - start <= together:
        yield from source.batches(rows, start, stop)
        return
    # Copies, because a block of a mapped file is only read when somebody looks at it.
    large = ((first, np.array(b)) for first, b in source.batches(together, start, stop))
    for first, block in read_ahead(large):
        for begin in range(0, len(block), rows):
            yield first + begin, block[begin : begin + rows]
