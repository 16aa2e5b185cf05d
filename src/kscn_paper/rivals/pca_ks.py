"""PCA followed by k-subspaces: the linear method beside which deep ones have to be worth it."""

from __future__ import annotations

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
from kscn_paper.rivals.base import Baseline, all_samples, best_of


@dataclass(frozen=True)
class Constants:
    """Numbers that steer the method."""

    # Where the number of components is not given: variance that they hold, and how many at most.
    share: float = 0.9
    most_components: int = 100


CONSTANTS = Constants()


@dataclass(eq=False, repr=False, kw_only=True)
class PCAKS(Baseline):
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
        Trials, each with a record in the history.
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
    pca_dim_, subspace_dim_ : int
        The numbers used.
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
        n, d = n_samples, self.n_features_in_
        if min(n, d) < 2:
            raise InputError(
                f"X has {d} feature(s) and n_samples={n}, but principal components with subspaces "
                "in them need at least 2 of both."
            )
        if not isinstance(self.pca_dim, str) and self.pca_dim > min(n, d):
            raise InputError(
                f"pca_dim={self.pca_dim} must be at most {min(n, d)}, the smaller of "
                f"the {n} samples and {d} features."
            )

    def _fit(self, source: Source) -> None:
        samples = all_samples(source, CPU).numpy()
        self.pca_ = self._components(samples)
        self.pca_dim_ = len(self.pca_.components_)
        dim = self.subspace_dim
        self.subspace_dim_ = round(self.pca_dim_**0.5) if dim == "auto" else int(dim)
        if self.subspace_dim_ >= self.pca_dim_:
            raise InputError(
                f"subspace_dim={self.subspace_dim_} must be below the {self.pca_dim_} "
                "principal components kept; lower it or raise pca_dim."
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

        self.k_subspaces_ = best_of(trial, self.n_init, self.random_state_, self._record)
        self.labels_ = self.k_subspaces_.labels_
        self.inertia_ = self.k_subspaces_.inertia_
        self.n_iter_ = self.k_subspaces_.n_iter_

    def _components(self, samples: NDArray) -> PCA:
        if self.pca_dim != "auto":
            return PCA(self.pca_dim, random_state=self.random_state_).fit(samples)
        # scikit-learn would compute all components to find those that hold a share.
        pca = PCA(min(*samples.shape, CONSTANTS.most_components), random_state=self.random_state_)
        held = np.cumsum(pca.fit(samples).explained_variance_ratio_)
        kept = max(2, int(np.searchsorted(held, CONSTANTS.share)) + 1)
        for name in (
            "components_",
            "explained_variance_",
            "explained_variance_ratio_",
            "singular_values_",
        ):
            setattr(pca, name, getattr(pca, name)[:kept])
        pca.n_components_ = len(pca.components_)
        return pca

    def predict(self, X: Any) -> NDArray:
        """The nearest subspace of every sample, shape (n,)."""
        samples = all_samples(self._opened(X), CPU).numpy()
        return self.k_subspaces_.predict(self.pca_.transform(samples))
