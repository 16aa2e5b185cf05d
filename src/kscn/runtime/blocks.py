"""Samples as tensor blocks: a `Source` read in order, converted, flattened, moved and shifted."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source
from kscn.data.source import OnDevice
from kscn.errors import InputError
from kscn.runtime.group import place

# Rows in a block: on other devices than the CPU every block costs a wait or two.
ROWS, DEVICE_ROWS = 16384, 65536


def working_dtype(dtype: np.dtype) -> torch.dtype:
    """The precision to compute in: float32 where it holds the stored values, else float64."""
    small = dtype.kind in "biu" and dtype.itemsize <= 2
    return torch.float32 if small or (dtype.kind == "f" and dtype.itemsize <= 4) else torch.float64


class Blocks:
    """The samples of a source as (start, tensor (b, d)) blocks, ready for arithmetic.

    `shift` (d,) is subtracted from every sample: it brings the data of affine subspaces to the
    origin. `batch_size` rows are held at a time, by default what suits the device.
    """

    def __init__(
        self,
        source: Source,
        dtype: torch.dtype,
        device: torch.device,
        shift: Tensor | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.source, self.dtype, self.device, self.shift = source, dtype, device, shift
        self.batch_size = batch_size or (ROWS if device.type == "cpu" else DEVICE_ROWS)
        self.dim = int(np.prod(source.shape))

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """All samples in order."""
        there = on_device(self.source, self.device)
        if there is None:
            for start, rows in self.source.batches(self.batch_size):
                yield start, self._ready(as_stored(rows, self.device))
        else:
            for start in range(0, len(self), self.batch_size):
                stop = min(start + self.batch_size, len(self))
                yield start, self._ready(there.tensor(start, stop))

    def take(self, indices: NDArray) -> Tensor:
        """The rows `indices` as one tensor."""
        there = on_device(self.source, self.device)
        if there is None:
            return self._ready(as_stored(self.source.take(indices), self.device))
        return self._ready(there.tensor_of(indices))

    def check(self, energy: float) -> None:
        """Refuse samples that are no numbers, which the sum of their squared norms tells.

        So nothing is looked at on a device until all blocks are done, and a sample that is at fault
        is looked for only if there is one.
        """
        if not math.isfinite(energy):
            first, _ = place(self.source)
            for start, z in Blocks(self.source, self.dtype, self.device):
                check_finite(z.square().sum(dim=1), self.source.name, first + start)

    def _ready(self, block: Tensor) -> Tensor:
        block = block.reshape(len(block), self.dim).to(self.dtype)
        return block if self.shift is None else block - self.shift


def on_device(source: Source, device: torch.device) -> OnDevice | None:
    """The source, if its samples come to be on this device."""
    return source if isinstance(source, OnDevice) and source.device == device else None


def as_stored(rows: NDArray, device: torch.device) -> Tensor:
    """Samples as a tensor on a device: in their own type, or in float64 where torch lacks it.

    That is so for integers of more than a byte as well, which float32 might not hold.
    """
    kind, size = rows.dtype.kind, rows.dtype.itemsize
    wide = (kind in "iu" and size > 1) or size > 8
    # As torch wants it: native byte order, contiguous, and free to write to, which nobody does.
    dtype = np.dtype(np.float64) if wide else rows.dtype.newbyteorder("=")
    rows = np.require(rows, dtype, ["C", "W"])
    # Flat, because the strides of a single row may be negative.
    return torch.from_numpy(rows.reshape(-1)).view(rows.shape).to(device)


def check_finite(values: NDArray | Tensor, name: str, numbers: int | NDArray = 0) -> None:
    """Refuse samples that are no numbers, in scikit-learn's words, and say which is the first.

    `values` are the samples (n, ...) or their squared norms (n,); `numbers` are those of the
    samples, or that of the first if they follow one another.
    """
    array = values.cpu().numpy() if isinstance(values, Tensor) else values
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    what = "NaN" if np.isnan(array).any() else "infinity or values too large for their squares"
    first = int((~np.isfinite(array)).reshape(len(array), -1).any(axis=1).argmax())
    row = numbers + first if isinstance(numbers, int) else numbers[first]
    raise InputError(
        f"Input {name} contains {what} in row {row}; remove or replace such samples first."
    )
