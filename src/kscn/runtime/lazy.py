"""What steps make of samples, as a `Source`, so that everything linear works on it unchanged."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.data import Source, as_source
from kscn.data.shuffle import read_ahead
from kscn.data.source import OnDevice
from kscn.nn.rows import block_rows, through
from kscn.runtime.blocks import as_stored, check_finite
from kscn.runtime.group import Group

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
        blocks = read_blocks(self._source, self._at_once, start, stop)
        return self._collected(stop - start, blocks)

    def tensor_of(self, rows: NDArray) -> Tensor:
        """What is made of the given samples."""
        few = (rows[low : low + self._at_once] for low in range(0, len(rows), self._at_once))
        return self._collected(len(rows), ((some, self._source.take(some)) for some in few))

    def all(self) -> Tensor:
        """What is made of all samples."""
        return self.tensor(0, len(self))

    def _collected(self, n: int, blocks: Iterable[tuple[int | NDArray, NDArray]]) -> Tensor:
        out, low = torch.empty(n, *self.shape, device=self.device), 0
        for numbers, rows in blocks:
            # Here and not by what is made of them: a ReLU can turn infinity into zero.
            check_finite(rows, self._source.name, numbers)
            out[low : low + len(rows)] = self._made(as_stored(rows, self.device))
            low += len(rows)
        return out

    def _made(self, batch: Tensor) -> Tensor:
        return through(self._steps, batch.reshape(len(batch), *self._shape))


def kept(lazy: Lazy, most_bytes: int = KEEP_BYTES) -> Source:
    """The same in memory, if it fits; what is read from it is the same as well."""
    if len(lazy) * lazy.row_bytes > most_bytes:
        return lazy
    return as_source(lazy.all(), name=lazy.name)


def held_features(
    steps: nn.ModuleList,
    source: Source,
    device: torch.device,
    group: Group,
    described: Source | None = None,
) -> Source:
    """What steps make of this process's samples, in memory if it fits.

    `described` is what all steps but the last make of them, if that is known.
    """
    steps.to(device)
    if described is not None:
        source, steps = described, steps[-1:]
    return group.holding(kept(Lazy(source, steps, device)))


def read_blocks(
    source: Source, rows: int, start: int, stop: int, read_bytes: int = READ_BYTES
) -> Iterator[tuple[int, NDArray]]:
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
