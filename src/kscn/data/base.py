"""The contract that every kind of input fulfils: samples read in batches, by index.

Training only ever asks for "the next block of rows" or "these rows". A `Source` answers both and
never copies the whole input. Values are handed out as they are stored (`dtype`), without scaling
or conversion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kscn.errors import InputError

# An array made of a lazy source is filled in steps of this many bytes.
_COPY_BYTES = 32 * 2**20


class NotNumbersError(InputError, TypeError):
    """An array whose entries cannot be read as numbers (also a `TypeError`, as numpy raises)."""


class Source(ABC):
    """Samples of one shape and type that can be read in batches by index.

    Attributes
    ----------
    name : str
        What the samples are called in messages: an argument, a file or a data set.
    shape : tuple of int
        The shape of one sample.
    dtype : numpy.dtype
        The type of the values as stored; it may have a foreign byte order.
    on_disk : bool
        Whether reading waits for a file, so that reading ahead in the background pays.
    names : list of str, or None
        What the samples are called one by one, where each has a file of its own.
    columns : list of str
        What the numbers of a sample are called, where a table says so; else empty.
    chunk_rows : int, or None
        Rows that are read together whichever of them is asked for; None where scattered samples
        cost no more than neighbours.
    stretch_bytes : int
        Neighbours that are read together when samples are shuffled. Read in one go, a megabyte
        costs a disk hardly more than a single sample.
    window_bytes : int
        How much is held at a time while samples on disk are shuffled; as much again is read ahead.
    """

    on_disk = False
    names: list[str] | None = None
    columns: Sequence[str] = ()
    chunk_rows: int | None = None
    stretch_bytes = 2**20
    window_bytes = 64 * 2**20

    def __init__(self, name: str, shape: Sequence[int], dtype: np.dtype) -> None:
        """Samples of the shape `shape[1:]`, of which there are `shape[0]`."""
        check_shape(name, tuple(shape))
        check_dtype(name, dtype)
        self.name, self.dtype = name, dtype
        self._length, *sample = map(int, shape)
        self.shape = tuple(sample)

    def _read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, a view where the samples are in memory."""
        return self._gather(np.arange(start, stop))

    @abstractmethod
    def _gather(self, rows: np.ndarray) -> np.ndarray:
        """The given rows, which are unique and ascending so that a disk is read forwards."""

    def __len__(self) -> int:
        return self._length

    def batches(
        self, batch_size: int, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Consecutive blocks in order.

        Parameters
        ----------
        batch_size : int
            Rows in a block; the last one may be shorter.
        start, stop : int, optional
            The rows to cover, with the meaning that they have in a slice.

        Yields
        ------
        first : int
            The index of the block's first row.
        block : numpy.ndarray of shape (b, *shape)
            A view where the samples are in memory: do not write to it.
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1.")
        first, last, _ = slice(start, stop).indices(len(self))
        for low in range(first, last, batch_size):
            yield low, self._read(low, min(low + batch_size, last))

    @property
    def feature_names(self) -> list[str]:
        """Names of all numbers of a sample: `columns`, or "feature 0", ... for want of them."""
        width = int(np.prod(self.shape))
        given = self.columns if len(self.columns) == width else [""] * width
        return [name.strip() or f"feature {i}" for i, name in enumerate(given)]

    @property
    def pictures(self) -> Source:
        """What pages show of the samples: themselves, or the images that vectors stand for."""
        return self

    def stretches(self) -> np.ndarray | None:
        """Where to cut the samples into stretches that are best read whole, from 0 to the length.

        They have about `stretch_bytes`, in whole chunks. None where scattered samples cost no more
        than neighbours: in memory, or a file each.
        """
        if self.chunk_rows is None:
            return None
        chunks = max(1, self.stretch_bytes // (self.chunk_rows * self.row_bytes))
        return np.append(np.arange(0, len(self), chunks * self.chunk_rows), len(self))

    def take(self, indices: Any) -> np.ndarray:
        """The rows `indices`, in that order, repeats allowed, as a new array."""
        rows, inverse = np.unique(self._rows(indices), return_inverse=True)
        return self._gather(rows)[inverse.reshape(-1)]

    def _rows(self, indices: Any) -> np.ndarray:
        """Indices as a 1-D array of non-negative integers, checked against the length."""
        rows = np.asarray(indices)
        if rows.size == 0:
            return np.empty(0, dtype=np.intp)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise InputError("indices must be a one-dimensional sequence of integers.")
        rows = rows.astype(np.intp)
        outside = (rows < -len(self)) | (rows >= len(self))
        if outside.any():
            raise InputError(
                f"indices holds {rows[outside][0]}, but {self.name} has {len(self)} samples; "
                f"use indices from 0 to {len(self) - 1}."
            )
        return np.where(rows < 0, rows + len(self), rows)

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, (int, np.integer)):
            # An IndexError, which ends Python's own iteration over a sequence, where it is outside.
            row = range(len(self))[index]
            return self._read(row, row + 1)[0]
        if isinstance(index, slice):
            index = range(len(self))[index]
            if index.step == 1:
                return self._read(index.start, max(index.start, index.stop))
        return self.take(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"{self.name} is not in memory; an array of it is always a copy")
        out = np.empty((len(self), *self.shape), dtype=self.dtype if dtype is None else dtype)
        rows = max(1, _COPY_BYTES // max(1, self.row_bytes))
        for first, block in self.batches(rows):
            out[first : first + len(block)] = block
        return out

    def called(self, row: int) -> str:
        """What a sample is called on a page: its file, as far as that is text, or its number."""
        name = f"sample {row}" if self.names is None else self.names[row]
        return name.encode("utf-8", "replace").decode()

    @property
    def row_bytes(self) -> int:
        """Bytes of one sample."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self)} x {self.shape} {self.dtype}>"


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Refuse anything that is not a non-empty stack of samples, in scikit-learn's words."""
    if len(shape) < 2:
        raise InputError(
            f"Expected 2D array, got {'1D' if shape else 'scalar'} array instead: {name} has shape "
            f"{shape}. Reshape your data either using array.reshape(-1, 1) if your data has a "
            "single feature or array.reshape(1, -1) if it contains a single sample."
        )
    if 0 in shape:
        what = "sample(s)" if shape[0] == 0 else "feature(s)"
        raise InputError(
            f"{name} is empty: found array with 0 {what} (shape={shape}) while a minimum of 1 is "
            "required."
        )


def check_dtype(name: str, dtype: np.dtype) -> None:
    """Refuse values that are not real numbers."""
    if dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} is {dtype}; pass real numbers.")
    if dtype.kind not in "biuf":
        raise NotNumbersError(f"{name} holds {dtype} values, not numbers; convert it to floats.")
