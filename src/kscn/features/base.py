"""What all feature maps share: they are fitted once, then applied to one sample like to another.

Features are read through a `Source` that computes them when asked, so that nothing of the size of
the data has to be in memory.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import _check_feature_names, check_is_fitted
from torch import Tensor

from kscn.data import Source, as_source
from kscn.data.dataset import reason
from kscn.data.source import OnDevice
from kscn.errors import InputError, ModelFileError
from kscn.modelparts import shape_of

if TYPE_CHECKING:
    from typing_extensions import Self

# Numbers that are read or written at once.
BLOCK_NUMBERS = 2**22
MOST_ROWS = 1024


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer from samples to feature vectors that can be read lazily and saved.

    Attributes
    ----------
    n_features_in_ : int
        Numbers in a sample.
    sample_shape_ : tuple of int
        The shape of one sample.
    """

    # What is set after a fit changes nothing of what was fitted.
    _params_of_fit: dict[str, Any]
    n_features_in_: int
    sample_shape_: tuple[int, ...]
    _n_features_out: int

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn what the features need to know about the samples X; `y` is not looked at."""

    device = torch.device("cpu")

    @abstractmethod
    def _given(self, rows: NDArray) -> Tensor:
        """Samples (b, *sample_shape_) as the map takes them, on its device."""

    @abstractmethod
    def _apply(self, samples: Tensor) -> Tensor:
        """Features (b, d) of samples that are on the device, each independent of the others."""

    def _compute(self, rows: NDArray) -> NDArray:
        with torch.no_grad():
            return self._apply(self._given(rows)).cpu().numpy()

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        self.device = device
        return self

    @property
    def _dtype(self) -> np.dtype:
        """The type of the features."""
        return np.dtype(np.float32)

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """A fitted map as settings that fit into JSON, and arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        """The fitted map that `state` described."""

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

    def _take_shape(self, config: Mapping[str, Any]) -> None:
        """The shape of samples from a state, or a ValueError."""
        self.sample_shape_ = shape_of(config, "shape")
        self.n_features_in_ = math.prod(self.sample_shape_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_features_out")

    def _open(self, X: Any, reset: bool) -> Source:
        """X as a source, with scikit-learn's bookkeeping of names and number of features."""
        source = as_source(X)
        _check_feature_names(self, X, reset=reset)
        if reset:
            self.sample_shape_ = source.shape
            self.n_features_in_ = int(np.prod(source.shape))
        elif source.shape != self.sample_shape_:
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


class FeatureSource(OnDevice):
    """Features that are computed when they are read, on the device of their map."""

    def __init__(self, features: FeatureMap, samples: Source) -> None:
        self._features = features
        self._samples = samples
        width = max(features.n_features_in_, features._n_features_out)
        self._rows_at_once = max(1, min(MOST_ROWS, BLOCK_NUMBERS // width))
        name = f"the features of {samples.name}"
        super().__init__(name, len(samples), (features._n_features_out,), features._dtype)
        self.device = features.device

    def tensor(self, start: int, stop: int) -> Tensor:
        """Features of the samples `start` to `stop`."""
        parts = range(start, stop, self._rows_at_once)
        found = [self._made(slice(low, min(low + self._rows_at_once, stop))) for low in parts]
        return torch.cat(found)

    def tensor_of(self, rows: NDArray) -> Tensor:
        """Features of the given samples."""
        parts = range(0, len(rows), self._rows_at_once)
        return torch.cat([self._made(rows[low : low + self._rows_at_once]) for low in parts])

    def _made(self, rows: slice | NDArray) -> Tensor:
        """Features of a few samples, which are read where they are."""
        samples, maps = self._samples, self._features
        with torch.no_grad():
            if isinstance(samples, OnDevice) and samples.device == maps.device:
                if isinstance(rows, slice):
                    return maps._apply(samples.tensor(rows.start, rows.stop))
                return maps._apply(samples.tensor_of(rows))
            few = samples[rows]
            check_finite(few, samples.name)
            return maps._apply(maps._given(few))

    def _read(self, start: int, stop: int) -> NDArray:
        if self.device.type != "cpu":
            return super()._read(start, stop)
        out = np.empty((stop - start, *self.shape), dtype=self.dtype)
        for first, rows in self._samples.batches(self._rows_at_once, start, stop):
            out[first - start : first - start + len(rows)] = self._checked(rows)
        return out

    def _gather(self, rows: NDArray) -> NDArray:
        if self.device.type != "cpu":
            return super()._gather(rows)
        out = np.empty((len(rows), *self.shape), dtype=self.dtype)
        for low in range(0, len(rows), self._rows_at_once):
            some = slice(low, low + self._rows_at_once)
            out[some] = self._checked(self._samples.take(rows[some]))
        return out

    def _checked(self, rows: NDArray) -> NDArray:
        check_finite(rows, self._samples.name)
        return self._features._compute(rows)


def check_finite(rows: NDArray, name: str) -> None:
    """Refuse samples that are no numbers, in scikit-learn's words."""
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        what = "NaN" if np.isnan(rows).any() else "infinity"
        raise InputError(f"Input {name} contains {what}; remove or replace these samples first.")


def tensor_of(rows: NDArray, dtype: np.dtype) -> Tensor:
    """Rows as a tensor of that type; a copy only where torch could not read them in place."""
    return torch.from_numpy(np.require(rows, dtype=dtype, requirements=["C", "W"]))


def wrong_state(cls: type, error: Exception) -> ModelFileError:
    """The error for a state that `from_state` cannot use."""
    return ModelFileError(
        f"The model file does not describe a {cls.__name__} ({reason(error)}); save the model "
        "again."
    )
