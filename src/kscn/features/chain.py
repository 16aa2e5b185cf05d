"""Fitted feature maps one after the other, saved as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kscn.data import Source
from kscn.features.base import FeatureMap
from kscn.features.maps import ScaledFeatures, ScatteringFeatures, VotedFeatures
from kscn.features.pca import PCAFeatures

KINDS: dict[str, type[FeatureMap]] = {
    "scaled": ScaledFeatures,
    "scattering": ScatteringFeatures,
    "pca": PCAFeatures,
    "votes": VotedFeatures,
}


class FeatureChain(FeatureMap):
    """Feature maps applied in order, such as scattering and then principal components.

    Unlike scikit-learn's `Pipeline`, which fits them, it never holds the features of all samples,
    and it can be saved in a model file.

    Parameters
    ----------
    steps : sequence of FeatureMap
        Fitted already; `of_fitted` makes a chain of them.
    """

    def __init__(self, steps: Sequence[FeatureMap] = ()) -> None:
        self.steps = steps

    @classmethod
    def of_fitted(cls, steps: Sequence[FeatureMap]) -> Self:
        """A chain of steps that are fitted already."""
        chain = cls(steps)
        chain.sample_shape_, chain.device = steps[0].sample_shape_, steps[0].device
        chain._n_features_out = steps[-1]._n_features_out
        return chain

    def source(self, X: Any) -> Source:
        """Features of samples as a `Source` that computes them whenever they are read."""
        check_is_fitted(self)
        source = self._open(X, reset=False)
        for step in self.steps:
            source = step.source(source)
        return source

    def rest(self) -> Self:
        """The fitted chain without its first step, which must not be the only one."""
        return type(self).of_fitted(self.steps[1:])

    def to(self, device: torch.device) -> Self:
        """Compute on this device from now on."""
        for step in self.steps:
            step.to(device)
        return super().to(device)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Settings of the steps in order; arrays by the number of their step."""
        names = {cls: name for name, cls in KINDS.items()}
        configs: list[dict[str, Any]] = []
        arrays: dict[str, NDArray] = {}
        for number, step in enumerate(self.steps):
            config, own = step.state()
            configs.append({"kind": names[type(step)], **config})
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
        return {"steps": configs}, arrays

    @classmethod
    def _of_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Self:
        steps: list[FeatureMap] = []
        for number, own in enumerate(config["steps"]):
            mine = f"{number}."
            parts = {k.removeprefix(mine): a for k, a in arrays.items() if k.startswith(mine)}
            steps.append(KINDS[own["kind"]]._of_state(own, parts))
            takes, gets = steps[-1].sample_shape_, steps[max(number - 1, 0)]._n_features_out
            if number and takes != (gets,):
                raise ValueError(f"step {number} takes {takes}, but gets {gets} numbers")
        return cls.of_fitted(steps)
