"""Samples as network input: a `Source` in shuffled mini-batches, or in order in equal blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import torch
from torch import Tensor

from kscn.data import Source
from kscn.data.shuffle import in_one_window, read_ahead, shuffled_exactly, shuffled_in_windows
from kscn.nn.scaling import InputScaling
from kscn.runtime.blocks import FiniteCheck, check_finite, from_numpy
from kscn.runtime.group import Part, place


@dataclass(eq=False)
class Minibatches:
    """The samples of a source, scaled and shaped for a network."""

    source: Source
    scaling: InputScaling  # from stored values to the network's
    shape: tuple[int, ...]  # of one sample as the network takes it: (c, h, w) or (d,)
    batch_size: int  # samples per step
    device: torch.device  # of the network
    read_bytes: int = 8 * 2**20  # from a disk at once by `blocks`, however small these are

    def __len__(self) -> int:
        return len(self.source)

    @property
    def per_epoch(self) -> int:
        """The number of mini-batches in an epoch.

        A last sample that would be alone joins the batch before: it would take a step as large as
        any other, and BatchNorm has nothing to normalise it by.
        """
        alone = len(self) > self.batch_size > 1 and len(self) % self.batch_size == 1
        return -(-len(self) // self.batch_size) - alone

    def shuffled(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch: (rows, batch) in an order drawn from `generator`, the same in all processes.

        A source on disk larger than a window is shuffled by stretches (`kscn.data.shuffle`),
        anything else exactly.

        Processes share one order of all samples, and each takes a stretch of it: in a file sorted
        by class its own part would have a few classes only, and BatchNorm their statistics. `rows`
        count the samples of all processes.
        """
        whole = self.per_epoch - 1
        sizes = chain(repeat(self.batch_size, whole), [len(self) - whole * self.batch_size])
        source, (first, n) = self.source, place(self.source)
        if isinstance(source, Part):
            source = source.source
        assert len(source) == n, "a process that holds its own samples only cannot draw from all"
        if in_one_window(source):
            order = torch.randperm(n, generator=generator)[first : first + len(self)]
            batches = shuffled_exactly(source, order.numpy(), sizes)
        else:
            seed = int(torch.randint(2**63 - 1, (), generator=generator))
            batches = shuffled_in_windows(source, seed, sizes, first)
        for rows, values in batches:
            yield torch.from_numpy(rows), self._tensor(values)

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Samples in order as (first, batch); those that are no numbers are refused."""
        finite = FiniteCheck(self.source.name)
        for first, block in self._in_order(rows, start, stop):
            batch = self._tensor(block)
            if block.dtype.kind == "f":
                # Here and not by the latents: a ReLU can turn infinity into zero.
                finite(batch, batch)
            yield first, batch
        finite.close()

    def _in_order(
        self, rows: int, start: int, stop: int | None
    ) -> Iterator[tuple[int, np.ndarray]]:
        low, high, _ = slice(start, stop).indices(len(self))
        together = rows * max(1, self.read_bytes // (rows * self.source.row_bytes))
        if not self.source.on_disk or high - low <= together:
            yield from self.source.batches(rows, start, stop)
            return
        # Copies, because a block of a mapped file is only read when somebody looks at it.
        large = ((first, np.array(b)) for first, b in self.source.batches(together, low, high))
        for first, block in read_ahead(large):
            for begin in range(0, len(block), rows):
                yield first + begin, block[begin : begin + rows]

    def take(self, indices: np.ndarray) -> Tensor:
        """The samples `indices`."""
        rows = self.source.take(indices)
        batch = self._tensor(rows)
        if rows.dtype.kind == "f":
            check_finite(batch, batch, self.source.name)
        return batch

    def _tensor(self, rows: np.ndarray) -> Tensor:
        kind, size = rows.dtype.kind, rows.dtype.itemsize
        if (kind in "iu" and size > 1) or size > 8:  # what torch lacks or float32 cannot hold
            rows = rows.astype(np.float64)
        # Native byte order and contiguous, as torch wants it.
        rows = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))
        return self.scaling(from_numpy(rows).to(self.device).reshape(len(rows), *self.shape))
