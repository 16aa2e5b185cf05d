"""PCA followed by k-subspaces: the linear method beside which deep ones have to be worth it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.utils.validation import check_is_fitted

from kscn.baselines.clusterer import Callbacks, Clusterer, flat_samples
from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.estimators import validation as check
from kscn.estimators.linear import KSubspaces

# Of the variance that components hold, when their number is not given, and most components then.
SHARE = 0.9
MOST_COMPONENTS = 100


class PCAKS(Clusterer):
    """Principal components, then plain k-subspaces in them, the best of several trials.

    A trial is one start (k-means on a subsample) and its iterations over all samples; the lowest
    sum of squared distances wins. All samples are held in memory.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    pca_dim : int or "auto", default="auto"
        Principal components kept, of centred samples and not whitened. "auto" keeps those that
        hold 90 % of the variance, 2 to 100 of them: 87 for MNIST, 84 for Fashion-MNIST, 21 for
        the 8 x 8 digits.
    subspace_dim : int or "auto", default="auto"
        Dimension of the subspaces. "auto" takes the square root of the number of components,
        rounded: 9 for MNIST and Fashion-MNIST, 5 for the digits. Subspaces must be small beside
        the space they lie in, or every one of them holds every sample.
    n_init : int, default=10
        Trials.
    max_iter : int, default=100
        Most iterations of a trial.
    tol : float, default=1e-4
        A trial is done when its objective falls by less than this share.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of the trials. The one used is recorded in `random_state_`.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the search after that trial.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample, equal to `predict(X)`. Clusters are numbered by falling size.
    pca_ : sklearn.decomposition.PCA
        The map to components.
    k_subspaces_ : KSubspaces
        The best trial.
    pca_dim_, subspace_dim_ : int
        The numbers used.
    inertia_ : float
        Sum of squared distances to the nearest subspace.
    n_iter_ : int
        Iterations of the best trial.
    history_ : list of dict
        One record per trial.
    random_state_, n_features_in_ : int
        The seed used, the number of features.
    """

    _integers: ClassVar = {"n_init": 1, "max_iter": 1}
    _numbers: ClassVar = {"tol": (0, np.inf)}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        pca_dim: int | str = "auto",
        subspace_dim: int | str = "auto",
        n_init: int = 10,
        max_iter: int = 100,
        tol: float = 1e-4,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Callbacks = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.pca_dim = pca_dim
        self.subspace_dim = subspace_dim
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def _check_settings(self, source: Source) -> None:
        super()._check_settings(source)
        n, d = len(source), int(np.prod(source.shape))
        if min(n, d) < 2:
            raise InputError(
                f"X has {d} feature(s) and n_samples={n}, but principal components with subspaces "
                "in them need at least 2 of both."
            )
        if self.pca_dim != "auto":
            check._integer("pca_dim", self.pca_dim, 2)
            if self.pca_dim > min(n, d):  # type: ignore[operator]
                raise InputError(
                    f"pca_dim={self.pca_dim} must be at most {min(n, d)}, the smaller of "
                    f"the {n} samples and {d} features."
                )
        if self.subspace_dim != "auto":
            check._integer("subspace_dim", self.subspace_dim, 1)

    def _fit(self, source: Source) -> None:
        samples = flat_samples(source)
        # One that is a share of the variance would be computed from all components too.
        most = min(*samples.shape, MOST_COMPONENTS)
        wanted = most if self.pca_dim == "auto" else self.pca_dim
        self.pca_ = PCA(wanted, random_state=self.random_state_).fit(samples)
        if self.pca_dim == "auto":
            held = np.cumsum(self.pca_.explained_variance_ratio_)
            _keep_components(self.pca_, max(2, int(np.searchsorted(held, SHARE)) + 1))
        self.pca_dim_ = len(self.pca_.components_)
        dim = self.subspace_dim
        self.subspace_dim_ = round(self.pca_dim_**0.5) if dim == "auto" else int(dim)
        if self.subspace_dim_ >= self.pca_dim_:
            raise InputError(
                f"subspace_dim={self.subspace_dim_} must be below the {self.pca_dim_} "
                "principal components kept; lower it or raise pca_dim."
            )
        self.k_subspaces_ = self._best_trial(as_source(self.pca_.transform(samples), source.name))
        self.labels_ = self.k_subspaces_.labels_
        self.inertia_ = self.k_subspaces_.inertia_
        self.n_iter_ = self.k_subspaces_.n_iter_

    def _best_trial(self, components: Source) -> KSubspaces:
        best: KSubspaces | None = None
        draws = np.random.RandomState(self.random_state_).randint(2**31 - 1, size=self.n_init)
        for turn, drawn in enumerate(draws):
            found = KSubspaces(
                self.n_clusters,
                subspace_dim=self.subspace_dim_,
                n_init=1,
                max_iter=self.max_iter,
                tol=self.tol,
                device=self.device,
                random_state=int(drawn),
            ).fit(components)
            if best is None or found.inertia_ < best.inertia_:
                best = found
            if self._record(
                {
                    "stage": "search",
                    "round": turn + 1,
                    "rounds": self.n_init,
                    "objective": best.inertia_,
                }
            ):
                break
        assert best is not None
        return best

    def predict(self, X: Any) -> NDArray:
        """The nearest subspace of every sample, shape (n,)."""
        check_is_fitted(self, "labels_")
        samples = flat_samples(check.open_samples(self, X, reset=False))
        return self.k_subspaces_.predict(self.pca_.transform(samples))


def _keep_components(pca: PCA, kept: int) -> None:
    """Drop all but the leading components of a fitted PCA."""
    pca.components_ = pca.components_[:kept]
    pca.n_components_ = len(pca.components_)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_"):
        setattr(pca, name, getattr(pca, name)[:kept])
