"""What all feature maps share: they are fitted once, then applied to one sample like to another.

Features are read through a `Source` that computes them when asked, so that nothing of the size of
the data has to be in memory.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from kscn.constraints import Alternative, check_table
from kscn.data import Source, as_source
from kscn.data.source import OnDevice
from kscn.errors import InputError, ModelFileError, reason
from kscn.modelparts import shape_of
from kscn.nn.scaling import check_finite

__all__ = ["FeatureMap", "FeatureSource", "blocks", "check_finite", "working_dtype"]

# Numbers that are read or written at once, and rows at most.
_NUMBERS, _MOST_ROWS = 2**22, 1024


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer from samples to feature vectors that can be read lazily and saved.

    Attributes
    ----------
    n_features_in_ : int
        Numbers in a sample.
    sample_shape_ : tuple of int
        The shape of one sample.
    """

    device = torch.device("cpu")
    sample_shape_: tuple[int, ...]
    _n_features_out: int
    _parameter_constraints: ClassVar[Mapping[str, Sequence[Alternative]]] = {}

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn what the features need to know about the samples X; `y` is not looked at."""
        raise NotImplementedError(f"{type(self).__name__} is made of what was fitted before.")

    @abstractmethod
    def _apply(self, samples: Tensor) -> Tensor:
        """Features (b, d) of samples that are on the device, each independent of the others."""

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """A fitted map as settings that fit into JSON, and arrays."""
        config = {"params": self.get_params(deep=False), "shape": list(self.sample_shape_)}
        return config, self._arrays()

    def _arrays(self) -> dict[str, NDArray]:
        """What was learnt from samples besides their shape."""
        return {}

    @abstractmethod
    def _restore(self, arrays: Mapping[str, NDArray]) -> object:
        """Become the map of these `_arrays`; any of Python's errors says that there is none."""

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        """The fitted map that `state` described, or one sentence on why it describes none."""
        try:
            return cls._of_state(config, arrays)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ModelFileError(
                f"The model file does not describe a {cls.__name__} ({reason(error)}); save the "
                "model again."
            ) from error

    @classmethod
    def _of_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        features = cls(**config["params"])
        features._check_params()
        features.sample_shape_ = shape_of(config, "shape")
        features._restore(arrays)
        return features

    def transform(self, X: Any) -> NDArray:
        """Features of samples.

        Parameters
        ----------
        X : array-like, path or Source
            Samples of the shape that the map was fitted with.

        Returns
        -------
        ndarray of shape (n, n_features)
        """
        return np.asarray(self.source(X))

    def source(self, X: Any) -> Source:
        """Features of samples as a `Source` that computes them whenever they are read."""
        check_is_fitted(self)
        return FeatureSource(self, self._open(X, reset=False))

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        self.device = device
        for name, value in vars(self).items():
            if isinstance(value, (Tensor, nn.Module)):
                setattr(self, name, value.to(device))
        return self

    @property
    def n_features_in_(self) -> int:
        """Numbers in a sample."""
        return math.prod(self.sample_shape_)

    @property
    def _dtype(self) -> np.dtype:
        """The type of the features."""
        return np.dtype(np.float32)

    def _input_dtype(self, stored: np.dtype) -> np.dtype:
        """The type in which samples that are stored in another are taken."""
        return working_dtype(stored)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_features_out")

    def _check_params(self) -> None:
        check_table(self.get_params(deep=False), self._parameter_constraints)

    def _open(self, X: Any, reset: bool) -> Source:
        """X as a source, with scikit-learn's bookkeeping of names and number of features."""
        source = as_source(X)
        # Names only: samples may have any shape, and be read from a file.
        validate_data(self, X, reset=reset, skip_check_array=True, ensure_2d=False)
        if reset:
            self._check_params()
            self.sample_shape_ = source.shape
        elif _without_channel(source.shape) != _without_channel(self.sample_shape_):
            if len(source.shape) == len(self.sample_shape_) == 1:
                raise InputError(
                    f"X has {source.shape[0]} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input."
                )
            raise InputError(
                f"X has samples of shape {source.shape}, but {type(self).__name__} was fitted with "
                f"samples of shape {self.sample_shape_}; give samples of that shape."
            )
        return source


def _without_channel(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a grey image with or without its only channel."""
    return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape


class FeatureSource(OnDevice):
    """Features that are computed when they are read, on the device of their map."""

    def __init__(self, features: FeatureMap, samples: Source) -> None:
        self._features = features
        self._samples = samples
        width = max(features.n_features_in_, features._n_features_out)
        self._rows_at_once = max(1, min(_MOST_ROWS, _NUMBERS // width))
        name = f"the features of {samples.name}"
        super().__init__(name, len(samples), (features._n_features_out,), features._dtype)
        self.device = features.device

    def tensor(self, start: int, stop: int) -> Tensor:
        """Features of the samples `start` to `stop`."""
        samples, dtype = self._samples, self._features._input_dtype(self._samples.dtype)
        return self._made(blocks(samples, self._rows_at_once, dtype, self.device, start, stop))

    def tensor_of(self, rows: NDArray) -> Tensor:
        """Features of the given samples."""
        samples, step = self._samples, self._rows_at_once
        few = (rows[low : low + step] for low in range(0, len(rows), step))
        if _lies_on(samples, self.device):
            return self._made(map(samples.tensor_of, few))
        dtype = self._features._input_dtype(samples.dtype)
        found = (_tensor(samples.take(some), samples.name, dtype) for some in few)
        return self._made(block.to(self.device) for block in found)

    def _made(self, blocks: Iterable[Tensor]) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._features._apply(block) for block in blocks])


def blocks(
    source: Source,
    rows: int,
    dtype: np.dtype,
    device: torch.device,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[Tensor]:
    """Consecutive samples as tensors on a device; those that lie there already keep their type."""
    stop = len(source) if stop is None else stop
    if _lies_on(source, device):
        for low in range(start, stop, rows):
            yield source.tensor(low, min(low + rows, stop))
    else:
        for _, block in source.batches(rows, start, stop):
            yield _tensor(block, source.name, dtype).to(device)


def _lies_on(source: Source, device: torch.device) -> TypeGuard[OnDevice]:
    """Whether samples can be taken where they are: other features, or tensors of another device."""
    if not isinstance(source, OnDevice) or source.device != device:
        return False
    return isinstance(source, FeatureSource) or device.type != "cpu"


def _tensor(rows: NDArray, name: str, dtype: np.dtype) -> Tensor:
    """Finite rows as a tensor; a copy only where torch could not read them in place."""
    check_finite(rows, name)
    return torch.from_numpy(np.require(rows, dtype=dtype, requirements=["C", "W"]))


def working_dtype(dtype: np.dtype) -> np.dtype:
    """float32 where it holds the stored values, else float64."""
    small = dtype.kind in "biu" and dtype.itemsize <= 2
    return np.dtype("f4" if small or (dtype.kind == "f" and dtype.itemsize <= 4) else "f8")
