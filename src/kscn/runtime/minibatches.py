"""Samples as network input: a `Source` in shuffled mini-batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import torch
from torch import Tensor

from kscn.data import Source
from kscn.data.shuffle import in_one_window, shuffled_exactly, shuffled_in_windows
from kscn.nn import DeepNetwork, InputScaling
from kscn.runtime.blocks import as_stored, check_finite
from kscn.runtime.group import Part, place
from kscn.runtime.lazy import Lazy, kept


@dataclass(eq=False)
class Minibatches:
    """The samples of a source, scaled and shaped for a network."""

    source: Source
    scaling: InputScaling  # from stored values to the network's
    shape: tuple[int, ...]  # of one sample as the network takes it: (c, h, w) or (d,)
    batch_size: int  # samples per step
    device: torch.device  # of the network

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

    def take(self, indices: np.ndarray) -> Tensor:
        """The samples `indices`."""
        rows = self.source.take(indices)
        check_finite(rows, self.source.name, indices)
        return self._tensor(rows)

    def _tensor(self, rows: np.ndarray) -> Tensor:
        return self.scaling(as_stored(rows, self.device).reshape(len(rows), *self.shape))


def encode(batches: Minibatches, network: DeepNetwork) -> Source:
    """The latents of all samples: where that is small a tensor, else encoded whenever read."""
    steps = batches.scaling, network.autoencoder, network.latent
    return kept(Lazy(batches.source, steps, batches.device, batches.shape, name="the latents"))
