"""k-means on the samples as they are."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import NDArray
from sklearn.cluster import KMeans

from kscn.baselines.base import all_samples, best_of
from kscn.baselines.centres import CentreBaseline
from kscn.constraints import Integer, Number, parameter
from kscn.data import Source
from kscn.runtime.device import CPU


@dataclass(eq=False, repr=False, kw_only=True)
class PixelKMeans(CentreBaseline):
    """k-means: scikit-learn's, the best of several starts by objective, on flattened samples.

    All samples are held in memory, in float32 where that holds the stored values, and on the CPU
    whatever the device.

    Parameters
    ----------
    n_clusters, device, random_state, callbacks
        As for all methods, see `kscn.baselines`.
    n_init : int, default=20
        Starts (k-means++), of which the lowest sum of squared distances wins.
    max_iter : int, default=300
        Most iterations of a start.
    tol : float, default=1e-4
        A start is done when its centres move by less, relative to the variance of the samples.

    Attributes
    ----------
    labels_, history_, random_state_, n_features_in_
        As for all methods; `labels_` equals `predict(X)`, the history has one record per start.
    cluster_centers_ : ndarray of shape (k, d)
    inertia_ : float
        Sum of squared distances to the nearest centre.
    n_iter_ : int
        Iterations of the best start.
    """

    n_init: int = parameter(20, Integer(1))
    max_iter: int = parameter(300, Integer(1))
    tol: float = parameter(1e-4, Number(0))

    def _find_centres(self, source: Source) -> NDArray:
        samples = all_samples(source, CPU).numpy()

        def start(seed: int) -> KMeans:
            settings = {"n_init": 1, "max_iter": self.max_iter, "tol": self.tol}
            return KMeans(self.n_clusters, random_state=seed, **settings).fit(samples)

        best = best_of(start, self.n_init, self.random_state_, self._record)
        self.n_iter_ = int(best.n_iter_)
        return best.cluster_centers_

    def _features(self, source: Source) -> Source:
        return source
