"""Any input as a `Source`: arrays, memory maps, tensors, torch data sets and files."""

import mmap
import os
import sys
from abc import abstractmethod
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from kscn.data.base import NotNumbersError, Source, check_dtype
from kscn.data.limits import readable
from kscn.errors import DataError, InputError


def as_source(X: Any, name: str | None = None) -> Source:
    """Any input as a `Source`, without copying it.

    Parameters
    ----------
    X : Source, array-like, numpy.memmap, torch.Tensor, torch Dataset, str or Path
        The samples, the first axis counting them. Lists and data frames become arrays; a str or
        Path is opened as a file or folder.
    name : str, optional
        What to call the samples in messages; a file keeps its own name by default.

    Raises
    ------
    InputError
        If the input is sparse, not numeric, empty, or has fewer than two dimensions.
    DataError
        If a file cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> from kscn.data import as_source
    >>> source = as_source(np.zeros((5, 3), dtype=np.float32))
    >>> len(source), source.shape
    (5, (3,))
    """
    if isinstance(X, Source):
        return X
    if isinstance(X, (str, Path)):
        from kscn.data.files import open_path

        source = open_path(X).samples
        source.name = name or source.name
        return source
    name = name or "X"
    if _is_sparse(X):
        raise InputError(f"{name} is sparse; pass a dense one, e.g. {name}.toarray().")
    if _is("torch", "Tensor", X):
        tensor = X.detach()
        if str(tensor.device) != "cpu" or str(tensor.dtype) == "torch.bfloat16":
            return TensorSource(tensor, name)
        return ArraySource(tensor.resolve_conj().resolve_neg().numpy(), name)
    if _is("h5py", "Dataset", X):
        return H5Source(X, name)
    if _is("torch.utils.data", "Dataset", X):
        return ItemSource(X, name)
    if isinstance(X, np.memmap) and _is_whole_map(X):  # pages of a map count as our memory
        return FileSource(open(str(X.filename), "rb"), X.offset, X.shape, X.dtype, name)
    return _array_source(X, name)


class ArraySource(Source):
    """Samples in an array in memory, or in a map of a file; blocks are views of it."""

    def __init__(self, array: np.ndarray, name: str) -> None:
        super().__init__(name, array.shape, array.dtype)
        # A plain ndarray slices several times faster than the memmap subclass.
        self._array = np.asarray(array)
        if _is_mapped(array):  # the system takes its pages back when it must
            self.on_disk, self.chunk_rows = True, 1

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self._array[start:stop]

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        return self._array[rows]

    def take(self, indices: Any) -> np.ndarray:
        """The rows `indices`, in that order; memory needs no sorted reading."""
        return super().take(indices) if self.on_disk else self._array[self._rows(indices)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._array, dtype=dtype, copy=copy)


class FileSource(Source):
    """Samples that follow one another in an open file, from a place in it on.

    They are read and not mapped: the pages of a map count as memory of the process until they are
    given back, and a file that is cut off meanwhile would end it.
    """

    on_disk = True
    chunk_rows = 1  # of any length, but a disk likes to read on

    def __init__(
        self, file: IO[bytes], offset: int, shape: tuple[int, ...], dtype: np.dtype, name: str
    ) -> None:
        super().__init__(name, shape, dtype)
        self._file, self._offset = file, offset

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        content = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        # Neighbours are read together.
        borders = np.flatnonzero(np.diff(rows, prepend=-2, append=-2) != 1)
        places = self._offset + rows[borders[:-1]] * self.row_bytes
        runs = pairwise((borders * self.row_bytes).tolist())
        for (low, high), place in zip(runs, places.tolist(), strict=True):
            while low < high:
                count = os.preadv(self._file.fileno(), [content[low:high]], place)
                if count == 0:
                    raise DataError(f"{self.name} became shorter while it was read; open it again.")
                low, place = low + count, place + count
        return out


class H5Source(Source):
    """Samples in an array of an HDF5 file, read when it is sliced."""

    on_disk = True

    def __init__(self, array: Any, name: str) -> None:
        super().__init__(name, array.shape, np.dtype(array.dtype))
        self._array = array
        # A chunk is unpacked whole for any row of it.
        self.chunk_rows = array.chunks[0] if array.chunks else 1

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self._gather(slice(start, stop))

    def _gather(self, rows: slice | np.ndarray) -> np.ndarray:
        with readable(self.name, "array"):
            return self._array[rows]


class OnDevice(Source):
    """Samples that come to be on a torch device, and are read there where they are wanted there."""

    device: Any  # torch.device

    @abstractmethod
    def tensor(self, start: int, stop: int) -> Any:
        """Rows `start` to `stop` as a tensor on the device."""

    @abstractmethod
    def tensor_of(self, rows: np.ndarray) -> Any:
        """The given rows as a tensor on the device, in that order."""

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self.tensor(start, stop).cpu().numpy()

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        return self.tensor_of(rows).cpu().numpy()


class TensorSource(OnDevice):
    """Samples in a torch tensor that numpy cannot see: on another device, or bfloat16."""

    def __init__(self, tensor: Any, name: str) -> None:
        import torch

        # bfloat16 has no numpy counterpart; float32 holds it exactly.
        self._type = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
        dtype = torch.empty(0, dtype=self._type).numpy().dtype
        super().__init__(name, tensor.shape, dtype)
        self._tensor, self.device = tensor, tensor.device

    def tensor(self, start: int, stop: int) -> Any:
        """Rows `start` to `stop`."""
        return self._tensor[start:stop].to(self._type)

    def tensor_of(self, rows: np.ndarray) -> Any:
        """The given rows."""
        import torch

        return self._tensor[torch.from_numpy(rows).to(self.device)].to(self._type)


class ItemSource(Source):
    """Samples that an object gives one by one, such as a map-style torch `Dataset`.

    An item may be the sample itself or a tuple that starts with it.
    """

    def __init__(self, items: Any, name: str) -> None:
        if not hasattr(items, "__len__"):
            raise InputError(f"{name} has no length; pass a map-style data set, with __len__.")
        if len(items) == 0:
            raise InputError(f"{name} has no samples; give at least one.")
        self._items = items
        first = self._item(0, name)
        super().__init__(name, (len(items), *first.shape), first.dtype)

    def _item(self, row: int, name: str) -> np.ndarray:
        item = self._items[row]
        item = item[0] if isinstance(item, (tuple, list)) else item
        item = item.detach().cpu() if hasattr(item, "detach") else item
        sample = np.asarray(item)
        check_dtype(f"Item {row} of {name}", sample.dtype)
        return sample

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        samples = [self._item(row, self.name) for row in rows.tolist()]
        for row, sample in zip(rows, samples, strict=True):
            if sample.shape != self.shape:
                raise InputError(
                    f"Item {row} of {self.name} has shape {sample.shape}, the first one "
                    f"{self.shape}; all samples must have one shape."
                )
        return np.array(samples, dtype=self.dtype).reshape(-1, *self.shape)


def _array_source(X: Any, name: str) -> Source:
    # Masked values would come back as the numbers beneath the mask.
    if isinstance(X, np.ma.MaskedArray) and (count := np.ma.count_masked(X)):
        raise InputError(
            f"{name} is a masked array of which {count} values are missing; fill them in, e.g. by "
            "its method filled, or leave those samples out."
        )
    try:
        array = np.asarray(X)
        # scikit-learn's convention: objects are fine as long as all of them are numbers.
        array = array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError) as error:
        raise NotNumbersError(
            f"{name} holds objects that are not numbers or of differing shape ({error}); convert "
            "it to an array of floats."
        ) from error
    return ArraySource(array, name)


def _is_mapped(array: Any) -> bool:
    """Whether an array is a map of a file or a view of one."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap)


def _is_whole_map(array: np.memmap) -> bool:
    """Whether an array is all of its map, row by row, as it is in the file."""
    own = isinstance(array.base, mmap.mmap) and array.mode != "c" and array.flags.c_contiguous
    return own and array.dtype.kind in "biuf" and array.filename is not None


def _is(module: str, kind: str, X: Any) -> bool:
    """Whether X is of a class of an optional module, which X itself must have imported."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(X, getattr(loaded, kind, ()))


def _is_sparse(X: Any) -> bool:
    tensor = _is("torch", "Tensor", X) and str(X.layout) != "torch.strided"
    return tensor or _is("scipy.sparse", "sparray", X) or _is("scipy.sparse", "spmatrix", X)
