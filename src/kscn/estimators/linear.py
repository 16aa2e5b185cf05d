"""`KSubspaces`: k-subspaces clustering behind scikit-learn's estimator interface."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags

from kscn.checks import subspace_dim
from kscn.constraints import FLAG, Integer, Number, array_of, parameter, require
from kscn.errors import InputError
from kscn.estimators import checks as check
from kscn.estimators.base import SubspaceClusterer
from kscn.model import FittedModel, SubspaceAssignment
from kscn.modelfile import ModelFile
from kscn.runtime.group import current_group, place
from kscn.subspaces import check_size
from kscn.training.k_subspaces import RACED, Options, k_subspaces


@dataclass(eq=False, repr=False, kw_only=True)
class KSubspaces(SubspaceClusterer):
    """Cluster samples by the k low-dimensional subspaces that they lie near.

    Minimises the sum of squared distances of samples to their nearest subspace,
    min over S_i, w of sum_j min_i |x_j - S_i S_i^T x_j|^2, by alternating assignment and SVD
    update. Time is linear in the number of samples and the input is only ever read in blocks, so
    a file larger than memory is fine. Images are flattened.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of subspaces.
    subspace_dim : int, sequence of int or "auto", default="auto"
        Dimension of the subspaces: one for all, one per cluster (in any order, since clusters are
        numbered by size), or chosen per cluster from the energy of the members' spectrum.
    affine : bool, default=False
        Let subspaces miss the origin: each gets an offset.
    trim : float, default=0.0
        Share of each cluster's farthest members left out when its subspace is updated, so that
        outliers do not turn it. All samples get labels all the same.
    init : {"auto", "neighbours", "k-means"} or array, default="auto"
        Where candidates start. "neighbours": from spectral clustering of the graph of nearest
        neighbours (by angle, or for affine subspaces by distance) and of the graph of samples whose
        local subspaces agree; right for data with little noise, such as the tracks of moving
        objects. "k-means": from clusters of k-means. "auto": from both. An array is one start and
        is used as it is: labels (n,) or bases (k, d, p).
    n_init : int, default=2
        Effort of the search for a start, on a subsample: this many independent chains of raced
        starts and swaps at most, fewer when they agree early or the problem is large. The lowest
        objective wins. 1 is a single start without search.
    max_iter : int, default=100
        Most iterations over the whole data, after the search.
    tol : float, default=1e-4
        Stop when the objective falls by less than this share; 0 runs until no label changes.
    batch_size : int, default=16384
        Samples held at a time. Does not change the result.
    device : str, default="auto"
        Torch device; "auto" takes a GPU when there is one.
    random_state : int, RandomState or None, default=None
        Seed of the search. The one used is recorded in `random_state_`.
    checkpoint_dir : path, optional
        Where the state of a fit is written while it goes on. A fit that finds the state of the
        same fit there (same settings, same data) goes on from it, to the same result. The last
        state stays; remove the directory to begin anew.
    callbacks : sequence of callables, default=()
        Called as `callback(estimator, record)` with each history record; one that returns True
        ends the fit after that iteration.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of every sample, equal to `predict(X)`. Clusters are numbered by falling size.
    subspaces_ : ndarray of shape (k, d, p)
        Orthonormal bases; a subspace of smaller dimension has zero columns at the end.
    offsets_ : ndarray of shape (k, d) or None
        A point on each affine subspace.
    subspace_dims_ : ndarray of shape (k,)
        Dimension of each subspace.
    spectra_ : ndarray of shape (k, d)
        Eigenvalues of each cluster's scatter, descending: what justifies the dimension.
    inertia_ : float
        Sum of squared distances to the nearest subspace (of samples that were not trimmed).
    n_iter_ : int
        Iterations over the whole data.
    history_ : list of dict
        One record per chain of the search and per iteration.
    random_state_ : int
        The seed used.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> from kscn import KSubspaces, data, metrics
    >>> X, y, _ = data.make_union_of_subspaces(600, 3, 20, 2, noise=0.01, random_state=0)
    >>> model = KSubspaces(3, subspace_dim=2, random_state=0).fit(X)
    >>> metrics.clustering_accuracy(y, model.labels_)
    1.0
    """

    subspace_dim: int | Sequence[int] | str = "auto"
    affine: bool = parameter(False, FLAG)
    trim: float = parameter(0.0, Number(0, 0.5))
    init: str | NDArray = parameter(  # noqa: RUF009 - a field
        "auto", *RACED, array_of("labels or bases")
    )
    n_init: int = parameter(2, Integer(1))
    max_iter: int = parameter(100, Integer(1))
    tol: float = parameter(1e-4, Number(0))
    batch_size: int = parameter(16384, Integer(1))

    # Fitting ------------------------------------------------------------------------------------

    def fit(self, X: Any, y: object = None, sample_weight: Any = None) -> Self:
        """Find the subspaces of X.

        Parameters
        ----------
        X : array-like, memmap, torch.Tensor, torch Dataset, data.Source or path
            Samples of shape (n, d), or images, which are flattened.
        y : ignored
        sample_weight : array-like of shape (n,), optional
            How much each sample counts in the updates and the objective.

        Notes
        -----
        Where torch.distributed is initialised, all its processes must call this with the same X
        and weights. Each reads its own contiguous part, and all end with the same model and the
        labels of all samples.
        """
        group = current_group()
        source, about = check.new_samples(X, group)
        n, d = place(source)[1], about["n_features_in_"]
        self._check_params(n, d)
        check.unequal(source, group)
        weights = check.sample_weights(sample_weight, n)
        run = self._run(source, group, weights=weights)
        use = Options(
            self.n_clusters,
            self.subspace_dim,
            affine=self.affine,
            trim=self.trim,
            init=self.init,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            batch_size=self.batch_size,
        )
        found, sums, shift = k_subspaces(source, use, run, weights)
        spectra = sums.spectra().cpu().numpy()
        # Mean square of the members for each direction outside of their subspace.
        outside = d - found.subspaces.dims.cpu()
        noise = found.inertia / max(float((sums.weight.cpu() * outside).sum()), 1e-300)
        return self._set(
            run,
            about,
            shape=(d,),
            steps=[],
            assignment=SubspaceAssignment.of(found.subspaces, shift),
            labels=found.labels,
            inertia=found.inertia,
            noise=noise,
            spectra_=spectra,
        )

    # Using the fitted model ---------------------------------------------------------------------

    @property
    def offsets_(self) -> NDArray | None:
        """A point on each affine subspace, shape (k, d)."""
        own = self.model_.assignment
        if own.offsets is None or own.shift is None:
            return None
        return (own.offsets + own.shift).cpu().numpy()

    @property
    def _n_features_out(self) -> int:
        return len(self.subspaces_)

    def transform(self, X: Any) -> NDArray:
        """Distance of every sample to every subspace, shape (n, k)."""
        return np.sqrt(self.residuals(X))

    def _check_params(self, n_samples: int, n_features: int) -> None:
        check.parameters(self, n_samples)
        if n_features < 2:
            raise InputError(
                f"X has {n_features} feature(s), but a subspace needs at least 2 to lie in."
            )
        subspace_dim(self.subspace_dim, self.n_clusters, n_features)
        check_size(self.n_clusters, n_features)

    # Model files --------------------------------------------------------------------------------

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {}, {"spectra": self.spectra_}

    @classmethod
    def _from_facts(cls, model: ModelFile, built: FittedModel) -> dict[str, Any]:
        spectra = model.tensors["spectra"]
        numbers = spectra.dtype.kind == "f" and bool(np.isfinite(spectra).all())
        fits = numbers and spectra.shape == built.assignment.bases.shape[:2]
        require(fits, "its spectra are not those of its subspaces")
        return {"spectra_": spectra}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
