"""What all feature maps share: they are fitted once, then applied to one sample like to another.

Features are read through a `Source` that computes them when asked, so that nothing of the size of
the data has to be in memory.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from kscn.data import Source, as_source
from kscn.data.source import OnDevice
from kscn.errors import InputError, ModelFileError, reason
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
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        """The fitted map that `state` described, or one sentence on why it describes none."""
        try:
            return cls._of_state(config, arrays)
        except ModelFileError:  # a step of a chain has said what is wrong with it
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ModelFileError(
                f"The model file does not describe a {cls.__name__} ({reason(error)}); save the "
                "model again."
            ) from error

    @classmethod
    @abstractmethod
    def _of_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        """The same; whatever is wrong with the state may be raised as Python raises it."""

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
        # Names only: samples may have any shape, and be read from a file.
        validate_data(self, X, reset=reset, skip_check_array=True, ensure_2d=False)
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
        samples, step = self._samples, self._rows_at_once
        if isinstance(samples, OnDevice) and samples.device == self.device:
            cuts = range(start, stop, step)
            return self._made(samples.tensor(low, min(low + step, stop)) for low in cuts)
        return self._made(self._given(rows) for _, rows in samples.batches(step, start, stop))

    def tensor_of(self, rows: NDArray) -> Tensor:
        """Features of the given samples."""
        samples, step = self._samples, self._rows_at_once
        few = (rows[low : low + step] for low in range(0, len(rows), step))
        if isinstance(samples, OnDevice) and samples.device == self.device:
            return self._made(map(samples.tensor_of, few))
        return self._made(self._given(samples.take(some)) for some in few)

    def _given(self, rows: NDArray) -> Tensor:
        check_finite(rows, self._samples.name)
        return self._features._given(rows)

    def _made(self, blocks: Iterable[Tensor]) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._features._apply(block) for block in blocks])


def check_finite(rows: NDArray, name: str) -> None:
    """Refuse samples that are no numbers, in scikit-learn's words."""
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        what = "NaN" if np.isnan(rows).any() else "infinity"
        raise InputError(f"Input {name} contains {what}; remove or replace these samples first.")


def tensor_of(rows: NDArray, dtype: np.dtype) -> Tensor:
    """Rows as a tensor of that type; a copy only where torch could not read them in place."""
    return torch.from_numpy(np.require(rows, dtype=dtype, requirements=["C", "W"]))
