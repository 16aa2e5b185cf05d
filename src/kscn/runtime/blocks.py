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

# Blocks are read whole or not at all when only some samples are wanted.
READ = 4096
# Rows in a block: on other devices than the CPU every block costs a wait or two.
ROWS, DEVICE_ROWS = 16384, 65536


def working_dtype(dtype: np.dtype) -> torch.dtype:
    """The precision to compute in: float32 where it holds the stored values, else float64."""
    small = dtype.kind in "biu" and dtype.itemsize <= 2
    return torch.float32 if small or (dtype.kind == "f" and dtype.itemsize <= 4) else torch.float64


class Blocks:
    """The samples of a source as (start, tensor (b, d)) blocks, ready for arithmetic.

    Parameters
    ----------
    source : Source
        Where the samples are.
    dtype, device
        Precision and place of the blocks.
    shift : Tensor, shape (d,), optional
        Subtracted from every sample (affine subspaces: brings the data to the origin).
    batch_size : int
        Rows held at a time; by default what suits the caches of a CPU, and more on other devices.
    """

    def __init__(
        self,
        source: Source,
        dtype: torch.dtype,
        device: torch.device,
        shift: Tensor | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.source = source
        self.dtype = dtype
        self.device = device
        self.shift = shift
        if batch_size is None:
            batch_size = ROWS if device.type == "cpu" else DEVICE_ROWS
        self.batch_size = batch_size
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

    def where(self, wanted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The rows set in the mask `wanted` (n,) as (indices, tensor) pieces, both on the device.

        Stretches without such a row are not read.
        """
        if self._there is not None:
            for rows in wanted.cpu().nonzero().flatten().split(self.batch_size):
                if len(rows):
                    yield rows.to(self.device), self._ready(self._there.tensor_of(rows.numpy()))
            return
        wanted = wanted.cpu()
        indices: list[Tensor] = []
        pieces: list[Tensor] = []
        gathered = 0
        for start, z in self._busy(wanted):
            rows = wanted[start : start + len(z)].nonzero().flatten()
            indices.append(rows + start)
            pieces.append(z if len(rows) == len(z) else z.index_select(0, rows.to(z.device)))
            gathered += len(rows)
            if gathered >= self.batch_size // 4:
                found = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
                yield torch.cat(indices).to(self.device), found
                indices, pieces, gathered = [], [], 0
        if pieces:
            yield torch.cat(indices).to(self.device), torch.cat(pieces)

    def _busy(self, wanted: Tensor) -> Iterator[tuple[int, Tensor]]:
        n = len(self)
        padded = torch.nn.functional.pad(wanted, (0, -n % READ))
        busy = torch.cat([padded.view(-1, READ).any(dim=1), torch.tensor([False])]).tolist()
        begin = None
        for stretch, is_busy in enumerate(busy):
            if is_busy and begin is None:
                begin = stretch
            elif not is_busy and begin is not None:
                for start, rows in self.source.batches(READ, begin * READ, min(stretch * READ, n)):
                    yield start, self._tensor(rows)
                begin = None

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


def held(source: Source, device: torch.device) -> Tensor:
    """All samples (n, d) as one float32 tensor on the device."""
    out = torch.empty(len(source), int(np.prod(source.shape)), device=device)
    for start, z in Blocks(source, torch.float32, device):
        out[start : start + len(z)] = z
    return out


def from_numpy(rows: np.ndarray) -> Tensor:
    """A tensor on the memory of `rows`, also when that is read-only (nobody writes to it)."""
    if min(rows.strides, default=0) < 0:  # a single row counts as contiguous whatever its stride
        rows = rows.copy()
    if rows.flags.writeable:
        return torch.from_numpy(rows)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(rows)


class FiniteCheck:
    """`check_finite` over many blocks; those on another device than the CPU wait for `close`.

    Every look at a device makes it wait.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: Tensor | None = None

    def __call__(self, norms: Tensor, z: Tensor) -> None:
        """Look at the samples z and their squared norms, or note what a look would find."""
        if z.device.type == "cpu":
            check_finite(norms, z, self.name)
            return
        found = torch.stack([~norms.isfinite().all(), z.isnan().any(), z.isinf().any()])
        self.faults = found if self.faults is None else self.faults | found

    def close(self) -> None:
        """Refuse the samples that were noted."""
        if self.faults is not None:
            faulty, nan, infinite = self.faults.tolist()
            _refuse(faulty, nan, infinite, self.name)


def check_finite(norms: Tensor, z: Tensor, name: str) -> None:
    """Refuse samples whose squared norm is not a number, in words that say which kind."""
    if not norms.isfinite().all():
        _refuse(True, bool(z.isnan().any()), bool(z.isinf().any()), name)


def _refuse(faulty: bool, nan: bool, infinite: bool, name: str) -> None:
    if not faulty:
        return
    if nan:
        what = "contains NaN"
    elif infinite:
        what = "contains infinity"
    else:
        what = "contains values too large for their squares to be represented"
    raise InputError(f"Input {name} {what}; remove or replace these samples first.")
