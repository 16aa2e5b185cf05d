"""Feature maps one after the other, fitted together and saved as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.features.base import FeatureMap
from kscn.features.maps import ScatteringFeatures
from kscn.features.pca import PCAFeatures
from kscn.features.scaled import ScaledFeatures
from kscn.features.votes import VotedFeatures

if TYPE_CHECKING:
    from typing_extensions import Self

# Features between two steps are kept up to this size while all of them are wanted in the end;
# larger ones are computed twice, once to fit the next step and once for its result.
KEEP_BYTES = 2**30

KINDS: dict[str, type[FeatureMap]] = {
    "scaled": ScaledFeatures,
    "scattering": ScatteringFeatures,
    "pca": PCAFeatures,
    "votes": VotedFeatures,
}


class FeatureChain(FeatureMap):
    """Feature maps applied in order, such as scattering and then principal components.

    Unlike scikit-learn's `Pipeline`, which works too, it never holds the features of all samples
    unless they are small, and it can be saved in a model file.

    Parameters
    ----------
    steps : sequence of FeatureMap
        `fit` fits them in place.
    """

    def __init__(self, steps: Sequence[FeatureMap]) -> None:
        self.steps = steps

    @classmethod
    def of_fitted(cls, steps: Sequence[FeatureMap]) -> Self:
        """A chain of steps that are fitted already."""
        chain = cls(steps)
        chain.sample_shape_ = steps[0].sample_shape_
        chain.n_features_in_ = steps[0].n_features_in_
        chain.device = steps[0].device
        return chain._prepare()

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit each step to the features of those before it; each reads the samples once."""
        source = self._start(X)
        for step in self.steps[:-1]:
            source = step.fit(source).source(source)
        self.steps[-1].fit(source)
        return self._prepare()

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray:
        """`fit(X).transform(X)`, without computing twice what can be kept meanwhile."""
        source = self._start(X)
        for step in self.steps:
            source = _kept(step.fit(source).source(source))
        self._prepare()
        return np.asarray(source)

    def _start(self, X: Any) -> Source:
        if not self.steps or not all(isinstance(step, FeatureMap) for step in self.steps):
            raise InputError("steps must be a sequence of feature maps such as ScatteringFeatures.")
        return self._open(X, reset=True)

    def _prepare(self) -> Self:
        self._steps = list(self.steps)
        self._n_features_out = self.steps[-1]._n_features_out
        return self

    def source(self, X: Any) -> Source:
        """Features of samples as a `Source` that computes them whenever they are read."""
        check_is_fitted(self)
        source = self._open(X, reset=False)
        for step in self._steps:
            source = step.source(source)
        return source

    def rest(self) -> Self:
        """The fitted chain without its first step, which must not be the only one."""
        return type(self).of_fitted(self._steps[1:])

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        for step in self._steps:
            step.to(device)
        return super().to(device)

    def _given(self, rows: NDArray) -> Tensor:
        return self._steps[0]._given(rows)

    def _apply(self, samples: Tensor) -> Tensor:
        for step in self._steps:
            samples = step._apply(samples)
        return samples

    @property
    def _dtype(self) -> np.dtype:
        return self._steps[-1]._dtype

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Settings of the steps in order; arrays by the number of their step."""
        configs: list[dict[str, Any]] = []
        arrays: dict[str, NDArray] = {}
        for number, step in enumerate(self._steps):
            kind = next(name for name, cls in KINDS.items() if type(step) is cls)
            config, own = step.state()
            configs.append({"kind": kind, **config})
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
        return {"steps": configs}, arrays

    @classmethod
    def _of_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        steps = []
        for number, own in enumerate(config["steps"]):
            mine = f"{number}."
            parts = {k.removeprefix(mine): a for k, a in arrays.items() if k.startswith(mine)}
            steps.append(KINDS[own["kind"]].from_state(own, parts))
            takes, gets = steps[-1].sample_shape_, steps[max(number - 1, 0)]._n_features_out
            if number and takes != (gets,):
                raise ValueError(f"step {number} takes {takes}, but gets {gets} numbers")
        return cls.of_fitted(steps)


def _kept(source: Source) -> Source:
    """Features as an array where that is small, else computed whenever read."""
    if len(source) * source.row_bytes > KEEP_BYTES:
        return source
    return as_source(np.asarray(source), name=source.name)
