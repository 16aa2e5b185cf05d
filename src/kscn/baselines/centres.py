"""What methods with centres share: clusters are the samples nearest to them, in some map."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kscn.baselines.base import ROWS, Baseline, largest_first
from kscn.data import Source
from kscn.data.source import OnDevice
from kscn.runtime.blocks import Blocks, check_finite
from kscn.runtime.device import CPU


@dataclass(eq=False, repr=False, kw_only=True)
class CentreBaseline(Baseline):
    """A method whose clusters are the samples nearest to centres, in some map of them."""

    @abstractmethod
    def _find_centres(self, source: Source) -> NDArray:
        """The centres (k, m)."""

    @abstractmethod
    def _features(self, source: Source) -> Source:
        """Samples as they are compared with centres, (n, m)."""

    def _fit(self, source: Source) -> None:
        centres = self._find_centres(source)
        features = self._features(source)
        self.cluster_centers_, labels, distance = largest_first(
            centres, lambda ordered: nearest_centre(features, ordered)
        )
        self.inertia_ = float(distance.sum())
        self.labels_ = labels

    def predict(self, X: Any) -> NDArray:
        """The nearest centre of every sample, shape (n,)."""
        return nearest_centre(self._features(self._opened(X)), self.cluster_centers_)[0]


def nearest_centre(features: Source, centres: NDArray) -> tuple[NDArray, NDArray]:
    """The nearest centre of every sample (n,) and the squared distance to it (n,).

    Differences are squared in float64 rather than expanded into products, so that a sample's label
    does not depend on the samples that are read with it.
    """
    device = features.device if isinstance(features, OnDevice) else CPU
    k_centres = torch.from_numpy(centres).double().to(device)
    labels = np.empty(len(features), dtype=np.int32)
    distance = np.empty(len(features))
    for start, z in Blocks(features, torch.float64, device, batch_size=ROWS):
        check_finite(z.square().sum(dim=1), z, features.name)
        apart = torch.cdist(z, k_centres, compute_mode="donot_use_mm_for_euclid_dist")
        nearest, label = apart.min(dim=1)
        labels[start : start + len(z)] = label.cpu().numpy()
        distance[start : start + len(z)] = nearest.square().cpu().numpy()
    return labels, distance
