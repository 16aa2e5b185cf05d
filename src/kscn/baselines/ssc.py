"""Sparse subspace clustering (Elhamifar and Vidal, 2013): each sample by few others, by ADMM."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.baselines.affinity import AffinityBaseline
from kscn.baselines.base import unit_rows
from kscn.baselines.cost import PASS, Cost
from kscn.baselines.lasso import Atoms, sparse_codes
from kscn.baselines.spectral import keep_largest, symmetric_affinity
from kscn.constraints import Integer, Number, parameter
from kscn.data import Source


@dataclass(frozen=True)
class Constants:
    """Numbers that steer the coding and the estimate of its cost."""

    block: int = 512  # samples whose codes are searched at a time
    matrices: int = 7  # n x block matrices that takes
    typical_sweeps: int = 150  # that a sample takes on average


CONSTANTS = Constants()


@dataclass(eq=False, repr=False, kw_only=True)
class SparseCoder(AffinityBaseline):
    """Affinities from the l1 self-expression of features: the part that SSC and KSSC share."""

    alpha: float = parameter(20.0, Number(1))
    shared_weight: bool = parameter(True, bool)
    keep: float = parameter(1.0, Number(0, 1, closed="both"))
    max_iter: int = parameter(1000, Integer(1))
    tol: float = parameter(1e-3, Number(0))

    def _coding_cost(self, n: int, r: int, itemsize: int) -> Cost:
        """The cost of coding n samples with features of rank r."""
        memory = itemsize * n * (CONSTANTS.matrices * min(CONSTANTS.block, n) + 4 * r)
        return Cost(memory, n**2 * CONSTANTS.typical_sweeps * (4.0 * r + 8 * PASS))

    def _code(self, features: Tensor, further: Tensor | None, affine: bool) -> sparse.csr_array:
        """Affinity of samples by their codes; `further` are atoms besides the samples."""
        n = len(features)
        largest = largest_products(features)  # (n,)
        # A sample that no other correlates with has no code; weight 0 says so.
        weights = torch.where(largest > 0, self.alpha / largest, 0)
        if self.shared_weight and (largest > 0).any():
            weights = torch.where(largest > 0, self.alpha / largest[largest > 0].min(), 0)
        atoms = features if further is None else torch.cat([features, further])
        codes = sparse_codes(
            Atoms(atoms, n, affine),
            weights,
            penalty=self.alpha,
            max_iter=self.max_iter,
            tol=self.tol,
            block=CONSTANTS.block,
            on_progress=lambda done, residual: self._log(
                "codes", done=done, samples=n, residual=residual
            ),
        )
        self.n_iter_ = codes.n_iter
        for count, what in (
            (codes.unfinished, f"did not converge in max_iter={self.max_iter} sweeps"),
            (codes.unsolved, "have no codes because a callback ended the fit early"),
        ):
            if count:
                warnings.warn(f"{count} of {n} samples {what}.", ConvergenceWarning, stacklevel=5)
        inside = codes.columns < n  # codes of further atoms say nothing about pairs of samples
        rows, columns, values = (
            part[inside].numpy() for part in (codes.rows, codes.columns, codes.values)
        )
        self.codes_ = sparse.csr_array((values, (rows, columns)), shape=(n, n))
        return symmetric_affinity(keep_largest(self.codes_, self.keep))


@dataclass(eq=False, repr=False, kw_only=True)
class SSC(SparseCoder):
    """Sparse subspace clustering: spectral clustering of l1 self-expression.

    Every sample is written by the others, min |c|_1 + weight / 2 |x - sum_i c_i x_i|^2, and samples
    that use each other are close. With features of rank r, a sweep over all samples takes
    4 r n^2 operations and some 150 sweeps are usual; memory is linear in n. Where a callback ends
    the coding, samples not reached have no codes of their own.

    Parameters
    ----------
    n_clusters, device, random_state, callbacks
        As for all methods, see `kscn.baselines`.
    alpha : float, default=20.0
        The weight of a sample is alpha / mu, where mu is its largest inner product with another
        one, so that alpha > 1 is what gives it any code at all. Larger means denser codes and a
        smaller error.
    shared_weight : bool, default=True
        Give all samples the largest of these weights, as the original does. Without, a sample far
        from all others does not make the codes of the rest denser.
    outliers : float or None, default=None
        Also explain outlying entries, by a sparse error e that costs outliers / max_i |x_i|_1
        times |e|_1. Above 1; the larger, the fewer entries count as outlying. 5 is a good start.
    affine : bool, default=False
        Codes sum to one, for affine subspaces. Samples then keep their norm.
    normalize : bool, default=True
        Bring samples to unit norm first (unless affine).
    keep : float, default=1.0
        Share of the l1 norm of each code whose largest entries go into the affinity.
    max_iter : int, default=1000
        Most sweeps per sample.
    tol : float, default=1e-3
        Relative primal and dual residual at which a sample's code is done.
    max_samples : int, default=12000
        More samples are refused: time grows with their square.

    Attributes
    ----------
    labels_, history_, random_state_, n_features_in_
        As for all methods; the history has the cost, the progress of coding and the start of
        spectral clustering.
    codes_ : scipy.sparse.csr_array of shape (n, n)
        Row i writes sample i by the others.
    affinity_ : scipy.sparse.csr_array of shape (n, n)
        |C| + |C|^T, rows of C divided by their largest entry before.
    n_iter_ : int
        Most sweeps that a sample took.

    Examples
    --------
    >>> from kscn import data, metrics
    >>> from kscn.baselines.ssc import SSC
    >>> X, y, _ = data.make_union_of_subspaces(200, 3, 20, 2, random_state=0)
    >>> metrics.clustering_accuracy(y, SSC(3, random_state=0).fit_predict(X))
    1.0
    """

    outliers: float | None = parameter(None, Number(1, closed="neither"))
    affine: bool = parameter(False, bool)
    normalize: bool = parameter(True, bool)

    def _cost(self, n: int, d: int, itemsize: int) -> Cost:
        return self._coding_cost(n, min(n, d), itemsize)

    def _make_affinity(self, source: Source) -> sparse.csr_array:
        z = self._samples(source)
        z = unit_rows(z) if self.normalize and not self.affine else z / z.abs().max()
        further = None
        if self.outliers is not None:
            # |e|_1 with a weight is the plain l1 norm of codes for unit vectors divided by it.
            largest = z.abs().sum(dim=1).max()
            further = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
            further *= largest / self.outliers
        return self._code(z, further, bool(self.affine))


def largest_products(features: Tensor) -> Tensor:
    """The largest |inner product| of every row with another one, shape (n,)."""
    found = torch.empty_like(features[:, 0])
    block = CONSTANTS.block
    for begin in range(0, len(features), block):
        part = (features[begin : begin + block] @ features.mT).abs_()
        part.diagonal(begin).zero_()
        found[begin : begin + block] = part.amax(dim=1)
    return found
