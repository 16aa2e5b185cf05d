"""k-means on the samples as they are, and what all methods with centres share."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from kscn.constraints import Integer, Number, parameter
from kscn.data import Source
from kscn.data.source import OnDevice
from kscn.runtime.blocks import Blocks, check_finite
from kscn.runtime.device import CPU
from kscn_paper.rivals.base import Rival, all_samples, best_of, largest_first


@dataclass(eq=False, repr=False, kw_only=True)
class CentreRival(Rival):
    """A method whose clusters are the samples nearest to centres, in some map of them.

    Parameters
    ----------
    n_init : int, default=20
        Starts of k-means (k-means++), of which the lowest sum of squared distances wins.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, m)
        The centres, where the method compares samples with them.
    inertia_ : float
        Sum of squared distances to the nearest centre.
    n_iter_ : int
        Iterations of the best start of k-means.
    """

    n_init: int = parameter(20, Integer(1))

    @abstractmethod
    def _find_centres(self, source: Source) -> NDArray:
        """The centres (k, m)."""

    def _features(self, source: Source) -> Source:
        """Samples as they are compared with centres, (n, m)."""
        return source

    def _fit(self, source: Source) -> None:
        centres = self._find_centres(source)
        features = self._features(source)
        self.cluster_centers_, self.labels_, distance = largest_first(
            centres, lambda ordered: nearest_centre(features, ordered)
        )
        self.inertia_ = float(distance.sum())

    def _k_means(self, features: NDArray, **settings: Any) -> NDArray:
        """Centres (k, m) of the best start."""

        def start(seed: int) -> KMeans:
            return KMeans(self.n_clusters, n_init=1, random_state=seed, **settings).fit(features)

        best = best_of(start, self.n_init, self.random_state_)
        self._record("search", starts=self.n_init, objective=float(best.inertia_))
        self.n_iter_ = int(best.n_iter_)
        return best.cluster_centers_

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
    for start, z in Blocks(features, torch.float64, device, batch_size=4096):
        check_finite(z.square().sum(dim=1), features.name, start)
        apart = torch.cdist(z, k_centres, compute_mode="donot_use_mm_for_euclid_dist")
        nearest, label = apart.min(dim=1)
        labels[start : start + len(z)] = label.cpu().numpy()
        distance[start : start + len(z)] = nearest.square().cpu().numpy()
    return labels, distance


@dataclass(eq=False, repr=False, kw_only=True)
class PixelKMeans(CentreRival):
    """k-means: scikit-learn's, the best of several starts by objective, on flattened samples.

    All samples are held in memory, in float32 where that holds the stored values, and on the CPU
    whatever the device.

    Parameters
    ----------
    max_iter : int, default=300
        Most iterations of a start.
    tol : float, default=1e-4
        A start is done when its centres move by less, relative to the variance of the samples.
    """

    max_iter: int = parameter(300, Integer(1))
    tol: float = parameter(1e-4, Number(0))

    def _find_centres(self, source: Source) -> NDArray:
        samples = all_samples(source, CPU).numpy()
        return self._k_means(samples, max_iter=self.max_iter, tol=self.tol)
