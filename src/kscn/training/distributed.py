"""One process or many: sums over all samples, wherever these are.

Every loop works on the samples of its own process and asks its `Group` for what needs all of them:
sums, the cut of a trimming, gradients, the statistics of a batch. A process alone is its own group
and gets back what it gave, so loops are written once. Of many processes (kscn.training.processes)
each holds a contiguous part of the samples, and every answer is a collective of torch.distributed;
all must then ask the same questions in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from kscn.data import Source
from kscn.nn import InputScaling
from kscn.subspaces import ScatterSums, Subspaces, keep_nearest


class Group:
    """A process by itself: what it gives is what all give."""

    rank = 0
    size = 1

    def part(self, source: Source) -> Source:
        """The samples of `source` that this process works on."""
        return source

    def holding(self, rows: Source) -> Source:
        """`rows` as this process's part of the rows that all processes hold, in order of rank."""
        return rows

    def scaling(self, source: Source, image: bool) -> InputScaling:
        """What scales all samples for a network; `source` holds those of this process."""
        return InputScaling.of(source, image)

    def batch_size(self, wanted: int) -> int:
        """How many samples of a mini-batch of `wanted` this process takes."""
        return wanted

    def add(self, *numbers: float) -> Sequence[float]:
        """Sums of numbers over processes."""
        return numbers

    def largest(self, number: float) -> float:
        """The largest of the numbers that processes give."""
        return number

    def any(self, flag: bool) -> bool:
        """Whether any process says so."""
        return flag

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor over processes."""
        return tensor

    def total(self, tensor: Tensor) -> Tensor:
        """The same, with the gradient of this process's share; `gradients` adds up the others."""
        return tensor

    def once(self, loss: Tensor) -> Tensor:
        """A loss that all processes compute alike, such that their sum counts it once."""
        return loss

    def gather(self, rows: Tensor) -> Tensor:
        """Rows of all processes, in order of rank."""
        return rows

    def agree(self, tensor: Tensor) -> Tensor:
        """What the first process has, where rounding might make the others differ."""
        return tensor

    def agree_int(self, number: int) -> int:
        """The same for an integer, such as a seed that was drawn."""
        return int(self.agree(torch.tensor(number)))

    def agree_on(self, found: Subspaces) -> Subspaces:
        """Subspaces of the first process."""
        offsets = None if found.offsets is None else self.agree(found.offsets)
        return Subspaces(self.agree(found.bases), offsets)

    def whole(self, own: ScatterSums, before: ScatterSums) -> ScatterSums:
        """Scatter sums over all samples, from those over our `own`.

        `before` is what this returned last time; it remembers what eigenvectors were found.
        """
        return own

    def keep_nearest(
        self, distance: Tensor, labels: Tensor, trim: float, n_clusters: int
    ) -> Tensor:
        """Mask of the members that stay when each cluster drops its farthest share `trim`."""
        return keep_nearest(distance, labels, trim, n_clusters)

    def gradients(self, parameters: Sequence[nn.Parameter], figures: Tensor) -> Tensor:
        """Add up the gradients of all processes, in place, and return the sum of `figures`."""
        return figures

    def normalising(self, *modules: nn.Module) -> AbstractContextManager[object]:
        """While open, BatchNorm in `modules` goes by the batches of all processes together."""
        return nullcontext()


ALONE = Group()


def current_group() -> Group:
    """All processes of torch.distributed where that was initialised, else this one alone."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        from kscn.training.processes import processes

        return processes()
    return ALONE


class Part(Source):
    """The samples of one process, and where they are among all.

    Parameters
    ----------
    source : Source
        Holds them from row `offset` on.
    offset, length : int
        Which rows of `source` they are.
    first, whole : int
        Where the first of them is among the samples of all processes, and how many these are.
    """

    def __init__(self, source: Source, offset: int, length: int, first: int, whole: int) -> None:
        super().__init__(source.name, length, source.shape, source.dtype)
        self.first, self.whole = first, whole
        self.on_disk = source.on_disk
        self._source, self._offset = source, offset

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self._source[start + self._offset : stop + self._offset]

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.empty((0, *self.shape), dtype=self.dtype)
        return self._source.take(rows + self._offset)

    def batches(
        self, batch_size: int, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Consecutive blocks in order, as the source itself reads them."""
        low, high, _ = slice(start, stop).indices(len(self))
        for first, block in self._source.batches(
            batch_size, low + self._offset, max(low, high) + self._offset
        ):
            yield first - self._offset, block

    def stretches(self) -> np.ndarray | None:
        """The source's cuts that fall into this part, and its ends."""
        cuts = self._source.stretches()
        if cuts is None:
            return None
        cuts = cuts - self._offset
        return np.concatenate([[0], cuts[(cuts > 0) & (cuts < len(self))], [len(self)]])


def place(source: Source) -> tuple[int, int]:
    """Where the samples of a source begin among those of all processes, and how many these are."""
    return (source.first, source.whole) if isinstance(source, Part) else (0, len(source))


def own_rows(source: Source, rows: np.ndarray) -> np.ndarray:
    """Of the samples `rows`, counted among all, those of this process, counted among its own."""
    first, _ = place(source)
    return rows[(rows >= first) & (rows < first + len(source))] - first


def send_module(group: Group, modules: Iterable[nn.Module]) -> None:
    """Give modules the weights that they have in the first process."""
    with torch.no_grad():
        for module in modules:
            for tensor in module.state_dict().values():
                tensor.copy_(group.agree(tensor))
