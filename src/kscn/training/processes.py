"""The processes of torch.distributed as a `Group`: every answer is one of its collectives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kscn.data import Source
from kscn.errors import InputError
from kscn.nn import InputScaling
from kscn.subspaces import ScatterSums
from kscn.training.collectives import add_up
from kscn.training.distributed import Group, Part
from kscn.training.sharednorm import shared_statistics

# Digits of a distance that one round of the search for a cut settles.
DIGIT_BITS = 8


class _Processes(Group):
    """The processes of torch.distributed's default group."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def part(self, source: Source) -> Source:
        if isinstance(source, Part):
            return source
        n = len(source)
        if n < self.size:
            raise InputError(
                f"{source.name} has {n} samples, too few for {self.size} processes; start fewer."
            )
        begin, end = (n * turn // self.size for turn in (self.rank, self.rank + 1))
        return Part(source, begin, end - begin, begin, n)

    def holding(self, rows: Source) -> Source:
        lengths = self._lengths(len(rows))
        return Part(rows, 0, len(rows), sum(lengths[: self.rank]), sum(lengths))

    def scaling(self, source: Source, image: bool) -> InputScaling:
        own = InputScaling.of(source, image)
        factor = float(own.factor)
        if image:  # one over the largest value
            return InputScaling(own.shift, -self.largest(-factor))
        origin = self.agree(own.shift)
        away, n = own.shift - origin, len(source)
        all_n, spread = self.add(n, n * (factor**-2 + float(away.square().mean())))
        away = self.sum(n * away) / all_n
        variance = spread / all_n - float(away.square().mean())
        return InputScaling(origin + away, variance**-0.5)

    def batch_size(self, wanted: int) -> int:
        if wanted < 2 * self.size:
            raise InputError(
                f"batch_size={wanted} leaves each of {self.size} processes fewer than 2 samples; "
                f"use at least {2 * self.size}."
            )
        return round(wanted / self.size)

    def add(self, *numbers: float) -> Sequence[float]:
        return list(self.sum(torch.tensor(numbers, dtype=torch.float64)).tolist())

    def largest(self, number: float) -> float:
        everyone = torch.zeros(self.size, dtype=torch.float64)
        everyone[self.rank] = number
        return float(self.sum(everyone).max())

    def any(self, flag: bool) -> bool:
        return self.largest(float(flag)) > 0

    def sum(self, tensor: Tensor) -> Tensor:
        held = tensor.detach().clone(memory_format=torch.contiguous_format)
        add_up(held)
        return held

    def total(self, tensor: Tensor) -> Tensor:
        return tensor + (self.sum(tensor) - tensor.detach())

    def once(self, loss: Tensor) -> Tensor:
        return loss - loss.detach() * (1 - 1 / self.size)

    def gather(self, rows: Tensor) -> Tensor:
        lengths = self._lengths(len(rows))
        padded = rows.new_zeros(max(lengths), *rows.shape[1:])
        padded[: len(rows)] = rows
        received = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(received, padded)
        return torch.cat([some[:n] for some, n in zip(received, lengths, strict=True)])

    def _lengths(self, own: int) -> list[int]:
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = own
        return [int(n) for n in self.sum(lengths)]

    def agree(self, tensor: Tensor) -> Tensor:
        held = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.broadcast(held, 0)
        return held

    def whole(self, own: ScatterSums, before: ScatterSums) -> ScatterSums:
        out = ScatterSums(0, 0, False)
        out.dim, out.frame = own.dim, before.frame
        out.weight, out.second = self.sum(own.weight), self.sum(own.second)
        out.first = None if own.first is None else self.sum(own.first)
        out.changed = self.sum(own.changed.int()) > 0
        own.changed.zero_()
        return out

    def keep_nearest(
        self, distance: Tensor, labels: Tensor, trim: float, n_clusters: int
    ) -> Tensor:
        """As in one process, to the sample: the cut of a cluster is that of all its members.

        Distances are not negative, so their bit patterns sort as they do. Counts of the leading
        digits, added up over processes, settle the cut digit by digit. Samples at the very cut
        stay in the order of their indices.
        """
        labels = labels.long()
        bits = 32 if distance.dtype == torch.float32 else 64
        # Adding zero turns -0.0, whose pattern is not that of 0.0.
        keys = (distance + 0.0).view(torch.int32 if bits == 32 else torch.int64).long()
        members = self.sum(torch.bincount(labels, minlength=n_clusters))
        left = members - (trim * members.double()).long()  # how many stay
        cut = torch.zeros_like(members)
        for shift in range(bits - DIGIT_BITS, -1, -DIGIT_BITS):
            leading = (keys >> shift) >> DIGIT_BITS  # in two steps: 64 is no shift
            rows = (leading == cut[labels]).nonzero().flatten()
            digits = (keys[rows] >> shift) & (2**DIGIT_BITS - 1)
            counts = torch.bincount(
                (labels[rows] << DIGIT_BITS) + digits, minlength=n_clusters << DIGIT_BITS
            )
            below = self.sum(counts).view(n_clusters, -1).cumsum(dim=1)
            digit = (below < left[:, None]).sum(dim=1).clamp(max=2**DIGIT_BITS - 1)
            under = torch.nn.functional.pad(below, (1, 0)).gather(1, digit[:, None])[:, 0]
            left, cut = left - under, (cut << DIGIT_BITS) + digit
        keep = keys <= cut[labels]
        tied = (keys == cut[labels]).nonzero().flatten()
        counts = torch.bincount(labels[tied], minlength=n_clusters)
        earlier = self.gather(counts[None])[: self.rank].sum(dim=0)
        for i in (counts > left - earlier).nonzero().flatten().tolist():
            rows = tied[labels[tied] == i]
            keep[rows[max(0, int(left[i] - earlier[i])) :]] = False
        return keep

    def gradients(self, parameters: Sequence[nn.Parameter], figures: Tensor) -> Tensor:
        # One flat buffer and one collective: for small networks its latency is all that counts.
        grads = []
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:  # not used here, but perhaps elsewhere
                    parameter.grad = torch.zeros_like(parameter)
                grads.append(parameter.grad)
        flat = torch.cat([*(grad.reshape(-1) for grad in grads), figures.to(grads[0])])
        add_up(flat)
        pieces = flat.split([*(grad.numel() for grad in grads), len(figures)])
        torch._foreach_copy_(
            grads, [piece.view(grad.shape) for piece, grad in zip(pieces, grads, strict=False)]
        )
        return pieces[-1].to(figures)

    def normalising(self, *modules: nn.Module) -> AbstractContextManager[object]:
        return shared_statistics(*modules)


def processes() -> Group:
    """The processes of the default group."""
    return _Processes()
