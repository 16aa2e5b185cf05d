"""One process or several: what a loop needs to know of the samples of all of them.

Every loop works on the samples of its own process and asks its `Group` for what needs all: sums,
the cut of a trimming, the first process's value where rounding may differ. A process alone gets
back what it gave, so loops are written once. Of several processes each has a contiguous part of the
samples, and every method is a collective of torch.distributed, which all must call in the same
order. Networks are trained by torch's DistributedDataParallel.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from kscn.data import Source
from kscn.errors import InputError
from kscn.subspaces import ScatterSums, Subspaces, keep_nearest


class Group:
    """The processes that fit together; one by itself unless told otherwise."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    # Samples ------------------------------------------------------------------------------------

    def part(self, source: Source) -> Source:
        """The samples of `source` that this process works on."""
        if self.size == 1 or isinstance(source, Part):
            return source
        n = len(source)
        if n < self.size:
            raise InputError(
                f"{source.name} has {n} samples, too few for {self.size} processes; start fewer."
            )
        begin, end = (n * turn // self.size for turn in (self.rank, self.rank + 1))
        return Part(source, begin, end - begin, begin, n)

    def holding(self, rows: Source) -> Source:
        """`rows` as this process's part of the rows that all processes hold, in order of rank."""
        return rows if self.size == 1 else Part(rows, 0, len(rows), *self._span(len(rows)))

    def batch_size(self, wanted: int) -> int:
        """How many samples of a mini-batch of `wanted` this process takes."""
        if self.size > 1 and wanted < 2 * self.size:
            raise InputError(
                f"batch_size={wanted} leaves each of {self.size} processes fewer than 2 samples; "
                f"use at least {2 * self.size}."
            )
        return round(wanted / self.size)

    # Collectives --------------------------------------------------------------------------------

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor over processes."""
        if self.size == 1:
            return tensor
        held = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(held)
        return held

    def add(self, *numbers: float) -> list[float]:
        """Sums of numbers over processes."""
        total: list[float] = self.sum(torch.tensor(numbers, dtype=torch.float64)).tolist()
        return total

    def any(self, flag: bool) -> bool:
        """Whether any process says so."""
        return self.add(float(flag))[0] > 0

    def gather(self, rows: Tensor) -> Tensor:
        """Rows of all processes, in order of rank."""
        if self.size == 1:
            return rows
        first, whole = self._span(len(rows))
        everyone = rows.new_zeros(whole, *rows.shape[1:])
        everyone[first : first + len(rows)] = rows
        return self.sum(everyone)

    def agree(self, tensor: Tensor) -> Tensor:
        """What the first process has, where rounding might make the others differ."""
        return self.sum(tensor if self.rank == 0 else torch.zeros_like(tensor))

    def agree_on(self, found: Subspaces) -> Subspaces:
        """Subspaces of the first process."""
        offsets = None if found.offsets is None else self.agree(found.offsets)
        return Subspaces(self.agree(found.bases), offsets)

    def shared(self, found: Any) -> Any:
        """What the first process has, of any kind, given to all."""
        sent = [found]
        if self.size > 1:
            dist.broadcast_object_list(sent, 0)
        return sent[0]

    def _span(self, own: int) -> tuple[int, int]:
        """Where our `own` rows begin among those of all processes, and how many these are."""
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = own
        lengths = self.sum(lengths)
        return int(lengths[: self.rank].sum()), int(lengths.sum())

    # Subspaces ----------------------------------------------------------------------------------

    def sum_scatter(self, own: ScatterSums) -> ScatterSums:
        """Scatter sums over the samples of all processes."""
        first = None if own.first is None else self.sum(own.first)
        return ScatterSums.of(self.sum(own.weight), self.sum(own.second), first)

    def keep_nearest(
        self, distance: Tensor, labels: Tensor, trim: float, n_clusters: int
    ) -> Tensor:
        """Mask of the members that stay when each cluster drops its farthest share `trim`.

        As in one process, to the sample: every process looks at the distances of all.
        """
        first, _ = self._span(len(labels))
        stay = keep_nearest(self.gather(distance), self.gather(labels), trim, n_clusters)
        return stay[first : first + len(labels)]

    # Networks -----------------------------------------------------------------------------------

    def wrap(self, network: nn.Module) -> nn.Module:
        """The network such that its gradients become the mean over processes.

        BatchNorm goes by the batch of its own process in training, and the first process's running
        statistics are everyone's.
        """
        if self.size == 1:
            return network
        # torch warns of a kernel for one channel, where the stride over channels means nothing.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        # A static graph may leave some weights unused, such as those of a network of the user's.
        return DistributedDataParallel(network, static_graph=True)

    def total(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor over processes, with the gradient of this process's share."""
        return tensor if self.size == 1 else tensor + (self.sum(tensor) - tensor.detach())

    def once(self, loss: Tensor) -> Tensor:
        """A loss that all processes compute alike, such that their sum counts it once."""
        return loss if self.size == 1 else loss - loss.detach() * (1 - 1 / self.size)


ALONE = Group()


def current_group() -> Group:
    """All processes of torch.distributed where that was initialised, else this one alone."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return Group(dist.get_rank(), dist.get_world_size())
    return ALONE


class Part(Source):
    """The samples of one process: `length` rows of `source`, from row `offset` on.

    `first` is the number of the first among the samples of all processes, which are `whole`.
    """

    def __init__(self, source: Source, offset: int, length: int, first: int, whole: int) -> None:
        super().__init__(source.name, (length, *source.shape), source.dtype)
        self.first, self.whole = first, whole
        self.on_disk = source.on_disk
        self.source, self._offset = source, offset

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self.source[start + self._offset : stop + self._offset]

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.empty((0, *self.shape), dtype=self.dtype)
        return self.source.take(rows + self._offset)


def place(source: Source) -> tuple[int, int]:
    """Where the samples of a source begin among those of all processes, and how many these are."""
    return (source.first, source.whole) if isinstance(source, Part) else (0, len(source))


def own_rows(source: Source, rows: np.ndarray) -> np.ndarray:
    """Of the samples `rows`, counted among all, those of this process, counted among its own."""
    first, _ = place(source)
    return rows[(rows >= first) & (rows < first + len(source))] - first


def send_module(group: Group, modules: Iterable[nn.Module]) -> None:
    """Give modules the weights and buffers that they have in the first process."""
    with torch.no_grad():
        for module in modules:
            for tensor in module.state_dict().values():
                tensor.copy_(group.agree(tensor))
