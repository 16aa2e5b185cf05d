"""Modules applied such that no sample's result depends on the others in its batch.

Libraries choose their kernels by the shape of a batch, and some round a row by where it begins. So
a block always has the same number of samples, filled up with zeros, and rows all begin alike.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Samples and numbers in a block, at the most.
MOST_ROWS = 512
MOST_NUMBERS = 2**20


def applied(step: nn.Module, batch: Tensor) -> Tensor:
    """What a step makes of a batch; a network that also decodes only encodes here."""
    return getattr(step, "encode", step)(batch)


def through(steps: Iterable[nn.Module], batch: Tensor) -> Tensor:
    """What steps make of samples one after the other, in evaluation mode and without gradients."""
    with torch.no_grad():
        for step in steps:
            step.eval()
            run = partial(applied, step)
            alone = getattr(step, "row_by_row", False)  # by itself, in blocks of any size
            batch = run(batch) if alone else in_whole_blocks(run, batch)
    return batch


def block_rows(shape: tuple[int, ...]) -> int:
    """How many samples of a shape are computed at once: a power of two from 16 to 512."""
    fit = MOST_NUMBERS // max(1, math.prod(shape))
    return int(2 ** (max(16, min(MOST_ROWS, fit)).bit_length() - 1))


def in_whole_blocks(run: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    """run(batch), such that no sample's result depends on the others in the batch."""
    rows = block_rows(tuple(batch.shape[1:]))
    results = []
    for piece in batch.split(rows):
        n = len(piece)
        if n < rows:
            piece = torch.cat([piece, piece.new_zeros(rows - n, *piece.shape[1:])])
        with _AlignedRows() if batch.device.type == "cpu" else nullcontext():
            results.append(run(piece)[:n])
    return torch.cat(results)


class _AlignedRows(TorchFunctionMode):
    """Linear layers whose rows all begin at a multiple of 64 bytes, by columns of zeros.

    MKL rounds a row of a matrix product differently by its alignment, so with 21 inputs every
    fourth sample alone would get the same result.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is nn.functional.linear and len(args) > 1:
            samples, weight, *bias = args
            missing = (0, -samples.shape[-1] % 16)
            args = nn.functional.pad(samples, missing), nn.functional.pad(weight, missing), *bias
        return func(*args, **(kwargs or {}))
