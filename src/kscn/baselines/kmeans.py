"""k-means on the samples as they are, and the best of several starts for whoever needs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from kscn.baselines.clusterer import Callbacks, CentreClusterer, flat_samples
from kscn.data import Source


class PixelKMeans(CentreClusterer):
    """k-means: scikit-learn's, the best of several starts by objective, on flattened samples.

    All samples are held in memory, in float32 where that holds the stored values.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_init : int, default=20
        Starts (k-means++), of which the lowest sum of squared distances wins.
    max_iter : int, default=300
        Most iterations of a start.
    tol : float, default=1e-4
        A start is done when its centres move by less, relative to the variance of the samples.
    device : str, default="auto"
        For the common interface: k-means runs on the CPU.
    random_state : int, RandomState or None, default=None
        Seed of the starts. The one used is recorded in `random_state_`.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the search after that start.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample, equal to `predict(X)`. Clusters are numbered by falling size.
    cluster_centers_ : ndarray of shape (k, d)
    inertia_ : float
        Sum of squared distances to the nearest centre.
    n_iter_ : int
        Iterations of the best start.
    history_ : list of dict
        One record per start.
    random_state_, n_features_in_ : int
        The seed used, the number of features.
    """

    _integers: ClassVar = {"n_init": 1, "max_iter": 1}
    _numbers: ClassVar = {"tol": (0, np.inf)}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 20,
        max_iter: int = 300,
        tol: float = 1e-4,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Callbacks = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def _find_centres(self, source: Source) -> NDArray:
        best = best_k_means(
            flat_samples(source),
            self.n_clusters,
            self.n_init,
            self.random_state_,
            self._record,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        self.n_iter_ = int(best.n_iter_)
        return best.cluster_centers_

    def _features(self, source: Source) -> Source:
        return source


def best_k_means(
    samples: NDArray,
    n_clusters: int,
    n_init: int,
    seed: int,
    on_record: Callable[[dict[str, Any]], bool],
    **settings: Any,
) -> KMeans:
    """The start with the lowest objective, as a fitted `sklearn.cluster.KMeans`.

    Starts run one by one, so that `on_record` hears of each; when it returns True, the best so far
    is returned.
    """
    best: KMeans | None = None
    for turn, drawn in enumerate(np.random.RandomState(seed).randint(2**31 - 1, size=n_init)):
        found = KMeans(n_clusters, n_init=1, random_state=int(drawn), **settings).fit(samples)
        if best is None or found.inertia_ < best.inertia_:
            best = found
        record = {
            "stage": "search",
            "round": turn + 1,
            "rounds": n_init,
            "objective": float(best.inertia_),
        }
        if on_record(record):
            break
    assert best is not None
    return best
