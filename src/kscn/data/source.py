"""Any input as a `Source`: arrays, memory maps, tensors, torch data sets and files."""

from __future__ import annotations

import sys
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from kscn.data.arrays import ArraySource, MappedSource, shared_mapping
from kscn.data.base import NotNumbersError, Source, even_cuts, length_and_shape
from kscn.data.limits import readable
from kscn.errors import InputError


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
        from kscn.data.readers import open_path

        source = open_path(X).samples
        source.name = name or source.name
        return source
    name = name or "X"
    if _is("scipy.sparse", "sparray", X) or _is("scipy.sparse", "spmatrix", X):
        raise InputError(f"{name} is a sparse matrix; pass a dense array, e.g. {name}.toarray().")
    if _is("torch", "Tensor", X):
        return _tensor_source(X, name)
    if _is("h5py", "Dataset", X):
        return SlicedSource(X, name)
    # Indexable like a torch data set, yet no list, mapping or array-like.
    array_like = hasattr(X, "__array__") or hasattr(X, "__array_interface__")
    built_in = isinstance(X, (list, tuple, dict, bytes, range, memoryview))
    items = hasattr(X, "__len__") and hasattr(X, "__getitem__") and not (array_like or built_in)
    if items or _is("torch.utils.data", "Dataset", X):
        return ItemSource(X, name)
    return _array_source(X, name)


class SlicedSource(Source):
    """Samples in an array-like that reads from disk when sliced, such as an h5py data set."""

    on_disk = True

    def __init__(self, array: Any, name: str) -> None:
        super().__init__(name, *length_and_shape(array, name), np.dtype(array.dtype))
        self._array = array

    def stretches(self) -> np.ndarray | None:
        """Cuts between chunks, because a chunk is unpacked whole for any row of it."""
        chunks = getattr(self._array, "chunks", None)
        return even_cuts(len(self), self.row_bytes, chunks[0] if chunks else 1)

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
        super().__init__(name, *length_and_shape(tensor, name), dtype)
        self._tensor = tensor
        self.device = tensor.device

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
        super().__init__(name, len(items), first.shape, first.dtype)

    def _item(self, row: int, name: str) -> np.ndarray:
        item = self._items[row]
        if isinstance(item, (tuple, list)):
            item = item[0]
        if hasattr(item, "detach"):
            item = item.detach().cpu()
        _check_mask(item, f"Item {row} of {name}")
        sample = np.asarray(item)
        if sample.dtype.kind not in "biuf":
            raise InputError(
                f"Item {row} of {name} is not numeric ({type(item).__name__}); "
                "let the data set return an array or a tensor."
            )
        return sample

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        for place, row in enumerate(rows):
            sample = self._item(int(row), self.name)
            if sample.shape != self.shape:
                raise InputError(
                    f"Item {row} of {self.name} has shape {sample.shape}, the first one "
                    f"{self.shape}; all samples must have one shape."
                )
            out[place] = sample
        return out


def _array_source(X: Any, name: str) -> Source:
    _check_mask(X, name)
    for row in X if isinstance(X, (list, tuple)) else ():
        _check_mask(row, name)
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InputError(
            f"{name} cannot be read as an array because its rows differ in length; "
            "make all samples one shape."
        ) from error
    try:
        # scikit-learn's convention: objects are fine as long as all of them are numbers.
        array = array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError) as error:
        raise NotNumbersError(
            f"{name} holds objects that are not numbers ({error}); convert it to floats."
        ) from error
    kind = ArraySource if shared_mapping(array) is None else MappedSource
    return kind(array, name)


def _check_mask(array: Any, name: str) -> None:
    """Refuse masked values, which would come back as the numbers beneath the mask."""
    if isinstance(array, np.ma.MaskedArray) and (count := np.ma.count_masked(array)):
        raise InputError(
            f"{name} is a masked array of which {count} values are missing; fill them in, e.g. by "
            "its method filled, or leave those samples out."
        )


def _tensor_source(tensor: Any, name: str) -> Source:
    import torch

    if tensor.layout != torch.strided:
        raise InputError(f"{name} is a sparse tensor; pass a dense one, e.g. {name}.to_dense().")
    if tensor.is_complex():
        raise InputError(f"Complex data not supported: {name} is {tensor.dtype}; pass reals.")
    tensor = tensor.detach()
    if tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16:
        return ArraySource(tensor.resolve_neg().numpy(), name)
    return TensorSource(tensor, name)


def _is(module: str, kind: str, X: Any) -> bool:
    """Whether X is of a class of an optional module, which X itself must have imported."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(X, getattr(loaded, kind, ()))
