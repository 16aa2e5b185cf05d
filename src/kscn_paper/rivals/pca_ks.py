"""PCA followed by k-subspaces: the linear method beside which deep ones have to be worth it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from kscn.constraints import Integer, Number, parameter
from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.estimators.linear import KSubspaces
from kscn.runtime.device import CPU
from kscn_paper.rivals.base import Rival, all_samples, best_of

# Where the number of components is not given: the variance that they hold, and how many at most.
SHARE, MOST_COMPONENTS = 0.9, 100


@dataclass(eq=False, repr=False, kw_only=True)
class PCAKS(Rival):
    """Principal components, then plain k-subspaces in them, the best of several trials.

    A trial is one start (k-means on a subsample) and its iterations over all samples; the lowest
    sum of squared distances wins. All samples are held in memory.

    Parameters
    ----------
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

    Attributes
    ----------
    pca_ : sklearn.decomposition.PCA
        The map to components.
    k_subspaces_ : KSubspaces
        The best trial.
    subspace_dim_ : int
        The dimension used.
    inertia_ : float
        Sum of squared distances to the nearest subspace.
    n_iter_ : int
        Iterations of the best trial.
    """

    pca_dim: int | str = parameter("auto", Integer(2))
    subspace_dim: int | str = parameter("auto", Integer(1))
    n_init: int = parameter(10, Integer(1))
    max_iter: int = parameter(100, Integer(1))
    tol: float = parameter(1e-4, Number(0))

    def _check(self, n_samples: int) -> None:
        super()._check(n_samples)
        most = min(n_samples, self.n_features_in_)
        least = 2 if isinstance(self.pca_dim, str) else self.pca_dim
        if most < least:
            raise InputError(
                f"{n_samples} samples of {self.n_features_in_} features have no {least} principal "
                "components; lower pca_dim or give more of them."
            )

    def _fit(self, source: Source) -> None:
        samples = all_samples(source, CPU).numpy()
        wanted = MOST_COMPONENTS if isinstance(self.pca_dim, str) else self.pca_dim
        self.pca_ = PCA(min(*samples.shape, wanted), random_state=self.random_state_).fit(samples)
        if self.pca_dim == "auto":
            held = np.cumsum(self.pca_.explained_variance_ratio_)
            kept = max(2, int(np.searchsorted(held, SHARE)) + 1)
            self.pca_.components_ = self.pca_.components_[:kept]
        found = len(self.pca_.components_)
        dim = self.subspace_dim
        self.subspace_dim_ = round(found**0.5) if isinstance(dim, str) else dim
        if self.subspace_dim_ >= found:
            raise InputError(
                f"subspace_dim={self.subspace_dim_} must be below the {found} principal "
                "components kept; lower it or raise pca_dim."
            )
        components = as_source(self.pca_.transform(samples), source.name)

        def trial(seed: int) -> KSubspaces:
            return KSubspaces(
                self.n_clusters,
                subspace_dim=self.subspace_dim_,
                n_init=1,
                max_iter=self.max_iter,
                tol=self.tol,
                device=self.device,
                random_state=seed,
            ).fit(components)

        self.k_subspaces_ = best_of(trial, self.n_init, self.random_state_)
        self.labels_ = self.k_subspaces_.labels_
        self.inertia_ = self.k_subspaces_.inertia_
        self.n_iter_ = self.k_subspaces_.n_iter_

    def predict(self, X: Any) -> NDArray:
        """The nearest subspace of every sample, shape (n,)."""
        samples = all_samples(self._opened(X), CPU).numpy()
        return self.k_subspaces_.predict(self.pca_.transform(samples))
