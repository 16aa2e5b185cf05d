"""Vectors of any scale brought to one at which squares are far from the ends of float32."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import Tags
from torch import Tensor

from kscn.features.base import FeatureMap, tensor_of
from kscn.nn.scaling import InputScaling

if TYPE_CHECKING:
    from typing_extensions import Self


class ScaledFeatures(FeatureMap):
    """Samples less their mean, divided by their root mean square deviation, in float32.

    That is one number for all features, so directions keep their relative sizes.

    Attributes
    ----------
    scaling_ : InputScaling
    """

    scaling_: InputScaling

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find mean and deviation of the samples X, which are read once."""
        return self._prepare(InputScaling.of(self._open(X, reset=True), image=False))

    @classmethod
    def of_fitted(cls, scaling: InputScaling, shape: tuple[int, ...]) -> Self:
        """The map of a scaling that was found already, for samples of a shape."""
        features = cls()
        features.sample_shape_, features.n_features_in_ = shape, math.prod(shape)
        return features._prepare(scaling)

    def _prepare(self, scaling: InputScaling) -> Self:
        self.scaling_ = scaling.to(self.device)
        self._n_features_out = self.n_features_in_
        return self

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        if hasattr(self, "scaling_"):
            self.scaling_.to(device)
        return super().to(device)

    def _given(self, rows: NDArray) -> Tensor:
        exact = rows.dtype.kind == "f" and rows.dtype.itemsize <= 4
        return tensor_of(rows, np.dtype("f4" if exact else "f8")).to(self.device)

    def _apply(self, samples: Tensor) -> Tensor:
        return self.scaling_(samples.reshape(len(samples), -1))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """The shape of samples; shift and factor."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in self.scaling_.state_dict().items()}
        return {"shape": list(self.sample_shape_)}, arrays

    @classmethod
    def _of_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        features = cls()
        features._take_shape(config)
        return features._prepare(InputScaling.of_file(arrays, features.n_features_in_))
