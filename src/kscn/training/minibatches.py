"""Samples as network input: a `Source` in shuffled mini-batches, or in order in equal blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kscn.data import Source
from kscn.nn.scaling import InputScaling
from kscn.training.blocks import check_finite, from_numpy


class Minibatches:
    """The samples of a source, scaled and shaped for a network.

    Parameters
    ----------
    source : Source
        Where the samples are.
    scaling : InputScaling
        From stored values to the network's.
    shape : tuple of int
        Shape of one sample as the network takes it: (c, h, w) or (d,).
    batch_size : int
        Samples per step.
    device : torch.device
        Where the network is.
    """

    def __init__(
        self,
        source: Source,
        scaling: InputScaling,
        shape: tuple[int, ...],
        batch_size: int,
        device: torch.device,
    ) -> None:
        self.source = source
        self.scaling = scaling
        self.shape = shape
        self.batch_size = batch_size
        self.device = device

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
        """One epoch: (indices, batch) in an order drawn from `generator`."""
        order = torch.randperm(len(self), generator=generator)
        whole = self.batch_size * (self.per_epoch - 1)
        for indices in (*order[:whole].split(self.batch_size), order[whole:]):
            if len(indices):
                yield indices, self._tensor(self.source.take(indices.numpy()))

    def blocks(
        self, rows: int, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Samples in order as (first, batch); those that are no numbers are refused."""
        for first, block in self.source.batches(rows, start, stop):
            yield first, self._checked(block)

    def read(self, start: int, stop: int) -> Tensor:
        """Samples `start` to `stop`, in order."""
        return self._checked(self.source[start:stop])

    def take(self, indices: np.ndarray) -> Tensor:
        """The samples `indices`."""
        return self._checked(self.source.take(indices))

    def _checked(self, rows: np.ndarray) -> Tensor:
        batch = self._tensor(rows)
        if rows.dtype.kind == "f":
            # Here and not by the latents: a ReLU can turn infinity into zero.
            check_finite(batch, batch, self.source.name)
        return batch

    def _tensor(self, rows: np.ndarray) -> Tensor:
        kind, size = rows.dtype.kind, rows.dtype.itemsize
        if (kind in "iu" and size > 1) or size > 8:  # what torch lacks or float32 cannot hold
            rows = rows.astype(np.float64)
        # Native byte order and contiguous, as torch wants it.
        rows = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))
        return self.scaling(from_numpy(rows).to(self.device).reshape(len(rows), *self.shape))
