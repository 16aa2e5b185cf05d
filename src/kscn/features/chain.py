"""Feature maps one after the other, fitted together and saved as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.features.base import FeatureMap
from kscn.features.maps import ScaledFeatures, ScatteringFeatures, VotedFeatures
from kscn.features.pca import PCAFeatures

if TYPE_CHECKING:
    from typing import Self

# Features between two steps are kept during a fit up to this size; larger ones are computed twice,
# once to fit the next step and once for its result.
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

    def __init__(self, steps: Sequence[FeatureMap] = ()) -> None:
        self.steps = steps

    @classmethod
    def of_fitted(cls, steps: Sequence[FeatureMap]) -> Self:
        """A chain of steps that are fitted already."""
        chain = cls(steps)
        chain._prepare()
        return chain

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit each step to the features of those before it."""
        self._fitted_source(X)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray:
        """`fit(X).transform(X)`, without computing twice what can be kept meanwhile."""
        return np.asarray(self._fitted_source(X))

    def _fitted_source(self, X: Any) -> Source:
        """Fit all steps; the features of X, which are computed when they are read."""
        if not self.steps or not all(isinstance(step, FeatureMap) for step in self.steps):
            raise InputError("steps must be a sequence of feature maps such as ScatteringFeatures.")
        source = self._open(X, reset=True)
        for number, step in enumerate(self.steps):
            if number and len(source) * source.row_bytes <= KEEP_BYTES:
                source = as_source(np.asarray(source), name=source.name)
            source = step.fit(source).source(source)
        self._prepare()
        return source

    def _prepare(self) -> None:
        self._steps = list(self.steps)
        self.sample_shape_, self.device = self._steps[0].sample_shape_, self._steps[0].device
        self._n_features_out = self._steps[-1]._n_features_out

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

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Settings of the steps in order; arrays by the number of their step."""
        names = {cls: name for name, cls in KINDS.items()}
        configs: list[dict[str, Any]] = []
        arrays: dict[str, NDArray] = {}
        for number, step in enumerate(self._steps):
            config, own = step.state()
            configs.append({"kind": names[type(step)], **config})
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
        return {"steps": configs}, arrays

    def _restore(self, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> None:
        steps: list[FeatureMap] = []
        for number, own in enumerate(config["steps"]):
            mine = f"{number}."
            parts = {k.removeprefix(mine): a for k, a in arrays.items() if k.startswith(mine)}
            steps.append(KINDS[own["kind"]].from_state(own, parts))
            takes, gets = steps[-1].sample_shape_, steps[max(number - 1, 0)]._n_features_out
            if number and takes != (gets,):
                raise ValueError(f"step {number} takes {takes}, but gets {gets} numbers")
        self.steps = steps
        self._prepare()
