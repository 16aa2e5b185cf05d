"""Samples as tensor blocks: a `Source` read in order, converted, flattened, moved and shifted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kscn.data import Source
from kscn.data.source import OnDevice
from kscn.errors import InputError

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
        if self._there is not None:
            for start in range(0, len(self), self.batch_size):
                stop = min(start + self.batch_size, len(self))
                yield start, self._ready(self._there.tensor(start, stop))
            return
        for start, rows in self.source.batches(self.batch_size):
            yield start, self._tensor(rows)

    def take(self, indices: np.ndarray) -> Tensor:
        """The rows `indices` as one tensor."""
        if self._there is not None:
            return self._ready(self._there.tensor_of(indices))
        return self._tensor(self.source.take(indices))

    @property
    def _there(self) -> OnDevice | None:
        """The source, if its samples are where they are wanted, on another device than the CPU."""
        source = self.source
        if not isinstance(source, OnDevice) or self.device.type == "cpu":
            return None
        return source if source.device == self.device else None

    def _tensor(self, rows: np.ndarray) -> Tensor:
        target = np.float32 if self.dtype == torch.float32 else np.float64
        rows = np.ascontiguousarray(rows.reshape(len(rows), self.dim), dtype=target)
        return self._ready(from_numpy(rows).to(self.device))

    def _ready(self, block: Tensor) -> Tensor:
        block = block.reshape(len(block), self.dim).to(self.dtype)
        return block if self.shift is None else block - self.shift


def from_numpy(rows: np.ndarray) -> Tensor:
    """A tensor on the memory of `rows`, also when that is read-only (nobody writes to it)."""
    if min(rows.strides, default=0) < 0:  # a single row counts as contiguous whatever its stride
        rows = rows.copy()
    if rows.flags.writeable:
        return torch.from_numpy(rows)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(rows)


def as_stored(rows: np.ndarray, device: torch.device) -> Tensor:
    """Samples as a tensor on a device: in their own type, or in float64 where torch lacks it.

    That is so for integers of more than a byte as well, which float32 might not hold.
    """
    kind, size = rows.dtype.kind, rows.dtype.itemsize
    if (kind in "iu" and size > 1) or size > 8:
        rows = rows.astype(np.float64)
    # Native byte order and contiguous, as torch wants it.
    rows = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))
    return from_numpy(rows).to(device)


class FiniteCheck:
    """Refuses samples whose squared norm is not a number, in words that say which and why.

    At once on the CPU; elsewhere at `close`, because every look at a device makes it wait.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: Tensor | None = None  # whether there are any, NaN, infinity; the first row

    def __call__(self, norms: Tensor, z: Tensor, numbers: int | np.ndarray = 0) -> None:
        """Look at the samples z and their squared norms, or note what a look would find.

        `numbers` are those of the samples, or that of the first if they follow one another.
        """
        on_cpu = z.device.type == "cpu"
        if on_cpu and norms.isfinite().all():
            return
        bad = ~norms.isfinite().reshape(len(norms), -1).all(dim=1)
        first = bad.long().argmax()
        of = torch.as_tensor(numbers).to(z.device)
        row = of[first] if of.ndim else of + first
        found = torch.stack([bad.any().long(), z.isnan().any().long(), z.isinf().any().long(), row])
        if self.faults is not None:
            before = self.faults
            found = torch.cat([before[:3] | found[:3], before[3:].where(before[0] > 0, row)])
        self.faults = found
        if on_cpu:
            self.close()

    def close(self) -> None:
        """Refuse the samples that were noted."""
        faulty, nan, infinite, row = [0] * 4 if self.faults is None else self.faults.tolist()
        if not faulty:
            return
        what = "values too large for their squares to be represented"
        if nan or infinite:
            what = "NaN" if nan else "infinity"
        raise InputError(
            f"Input {self.name} contains {what} in row {row}; remove or replace such samples first."
        )


def check_finite(norms: Tensor, z: Tensor, name: str, numbers: int | np.ndarray = 0) -> None:
    """`FiniteCheck` of a single block."""
    finite = FiniteCheck(name)
    finite(norms, z, numbers)
    finite.close()
