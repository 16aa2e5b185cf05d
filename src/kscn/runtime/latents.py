"""The latents of a data set as a `Source`, so that everything linear works on them unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from kscn.data import Source, as_source
from kscn.data.source import OnDevice
from kscn.errors import TrainingError
from kscn.nn import DeepNetwork
from kscn.runtime.blocks import Blocks
from kscn.runtime.device import CPU
from kscn.runtime.group import ALONE, Group
from kscn.runtime.minibatches import Minibatches

# Samples and numbers in a block that goes through a network at once, at the most.
MOST_ROWS = 512
MOST_NUMBERS = 2**20
# Latents up to this size are kept between the passes of an update; larger ones are encoded anew.
KEEP_BYTES = 2**30


def encoded(network: DeepNetwork, batch: Tensor) -> Tensor:
    """Latents (n, d) of network inputs, each independent of the others, without gradients."""
    with evaluating(network), torch.no_grad():
        return each_alone(network.encode, batch)


def block_rows(shape: tuple[int, ...]) -> int:
    """How many samples of a shape go through a network at once: a power of two from 16 to 512."""
    fit = MOST_NUMBERS // int(np.prod(shape))
    return int(2 ** (max(16, min(MOST_ROWS, fit)).bit_length() - 1))


def each_alone(run: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    """run(batch), such that no sample's result depends on the others in the batch.

    Libraries choose their kernels by the shape, so a block always has the same number of samples,
    filled up with zeros; and some kernels by where a row begins, so rows all begin alike.
    """
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


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Modules in evaluation mode while the context is open."""
    before = {module: module.training for module in modules}
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for module, training in before.items():
            module.train(training)


class LatentSource(OnDevice):
    """Samples encoded when they are read, on the device of the network."""

    def __init__(self, batches: Minibatches, network: DeepNetwork) -> None:
        self._batches, self._encode = batches, partial(encoded, network)
        self._rows_at_once = block_rows(batches.shape)
        dim = self._encode(torch.zeros(1, *batches.shape, device=batches.device)).shape[1]
        name = f"the latent of {batches.source.name}"
        super().__init__(name, len(batches), (dim,), np.dtype(np.float32))
        self.device = batches.device

    def tensor(self, start: int, stop: int) -> Tensor:
        """Latents of the samples `start` to `stop`."""
        out = torch.empty(stop - start, *self.shape, device=self.device)
        for first, batch in self._batches.blocks(self._rows_at_once, start, stop):
            low = first - start
            out[low : low + len(batch)] = self._encode(batch)
        return out

    def tensor_of(self, rows: np.ndarray) -> Tensor:
        """Latents of the given samples."""
        out = torch.empty(len(rows), *self.shape, device=self.device)
        for low in range(0, len(rows), self._rows_at_once):
            some = slice(low, low + self._rows_at_once)
            out[some] = self._encode(self._batches.take(rows[some]))
        return out


def encode(batches: Minibatches, network: DeepNetwork, keep_bytes: int = KEEP_BYTES) -> Source:
    """The latents of all samples: where that is small a tensor, else encoded whenever read."""
    lazy = LatentSource(batches, network)
    if len(lazy) * lazy.row_bytes > keep_bytes:
        return lazy
    return as_source(lazy.tensor(0, len(lazy)), name=lazy.name)


def moments(
    codes: Source, group: Group = ALONE, device: torch.device = CPU
) -> tuple[Tensor, Tensor]:
    """Mean (d,) and covariance (d, d) of codes, which must carry something to cluster by.

    With a `group`, `codes` are those of this process and the moments those of all.
    """
    d = codes.shape[0]
    total = torch.zeros(d, dtype=torch.float64, device=device)
    second = torch.zeros(d, d, dtype=torch.float64, device=device)
    for _, z in Blocks(codes, torch.float64, device):
        total += z.sum(dim=0)
        second += z.mT @ z
    (n,) = group.add(len(codes))
    mean, second = group.sum(total) / n, group.sum(second)
    covariance = second / n - mean[:, None] * mean
    energy, spread = float(second.trace()) / n, float(covariance.trace())
    if not np.isfinite(energy):
        raise TrainingError(
            "the latent is no longer finite after pretraining; lower learning_rate and fit again."
        )
    if spread <= 1e-10 * max(energy, 1e-30):
        raise TrainingError(
            "the latent collapsed: the autoencoder gives all samples the same code, so there is "
            "nothing to cluster; lower learning_rate, train longer, or use another seed."
        )
    return mean, covariance
