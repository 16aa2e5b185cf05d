"""Low-rank representation (Liu et al., 2013): samples by samples at the lowest rank, robustly."""

import math
import warnings
from dataclasses import dataclass

import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.constraints import POSITIVE, Integer, Number, parameter
from kscn.data import Source
from kscn_paper.rivals.base import unit_rows
from kscn_paper.rivals.self_expression import AffinityRival, angular_affinity

# Penalty of ADMM to begin with, iterations between its changes, over-relaxation.
PENALTY, LOOK, RELAX = 1.0, 10, 1.6
# Newton's method: most steps, relative step at which it ends.
MOST_NEWTON, NEWTON_TOL = 50, 1e-10
# Singular values below this share of the largest carry rounding errors only.
NEGLIGIBLE = {torch.float32: 1e-6, torch.float64: 1e-12}


@dataclass(frozen=True)
class LowRankCodes:
    """C = V @ reduced, with orthonormal V (n, r) of the samples' row space, and how good it is."""

    basis: Tensor  # V, (n, r)
    reduced: Tensor  # (r, n)
    weight: float  # of what C does not explain
    n_iter: int
    converged: bool

    def factors(self) -> Tensor:
        """U sqrt(s) of the SVD of C, shape (n, rank): rows that C makes alike."""
        left, s, _ = torch.linalg.svd(self.reduced, full_matrices=False)
        kept = s > 1e-6 * s[0].clamp(min=torch.finfo(s.dtype).tiny)
        return self.basis @ (left[:, kept] * s[kept].sqrt())


@dataclass(eq=False, repr=False, kw_only=True)
class LRR(AffinityRival):
    """Low-rank representation: spectral clustering of the lowest-rank self-expression.

    min |C|_* + weight |E|_{2,1}  with  X = X C + E  (samples are columns here), by the method of
    multipliers. The columns of C and E lie in the span of the samples, so all iterations work on
    r x n matrices, r the rank of X: about 6 r^2 n operations each, a few dozen of them, and no
    n x n matrix until the affinity.

    Parameters
    ----------
    weight : float or None, default=None
        Of the errors; larger trusts the samples more. The one to take depends on the number, rank
        and scale of the samples: None takes 3 r mean|x| / sum |x|^2, three times the weight at
        which samples spread evenly over their r dimensions would all be given up as errors.
    power : float, default=4.0
        Affinity is max(0, cosine)^power between rows of U sqrt(s), C = U s V^T; more means fewer
        neighbours.
    max_iter : int, default=500
        Most iterations.
    tol : float, default=1e-5
        Relative primal and dual residual at which to stop.

    Attributes
    ----------
    weight_ : float
        The weight used.
    n_iter_ : int
        Iterations.
    """

    weight: float | None = parameter(None, POSITIVE)
    power: float = parameter(4.0, POSITIVE)
    max_iter: int = parameter(500, Integer(1))
    tol: float = parameter(1e-5, Number(0))

    def _make_affinity(self, source: Source) -> NDArray:
        z = unit_rows(self._samples(source))
        codes = low_rank_codes(
            z,
            self.weight,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        self._record("codes", iterations=codes.n_iter)
        if not codes.converged:
            warnings.warn(
                f"LRR did not converge in {codes.n_iter} iterations; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.n_iter_, self.weight_ = codes.n_iter, codes.weight
        return angular_affinity(codes.factors().to(z.dtype), self.power)


def low_rank_codes(
    z: Tensor,
    weight: float | None = None,
    *,
    max_iter: int = 500,
    tol: float = 1e-5,
) -> LowRankCodes:
    """Solve LRR for samples z (n, d); parameters as for `LRR`.

    With the thin SVD X = U S V^T and C = V R, a rotation by U^T leaves
    min |R|_* + weight sum_j |S (v_j - r_j)|, where v_j is column j of V^T. ADMM on R and a copy
    of it needs the proximal steps of both terms, and both are exact: a soft threshold of singular
    values, and one scalar equation per sample. The usual split, with multipliers for X = X C + E,
    is conditioned like S^2 and stalls far from the optimum on real data.

    R = V^T is the solution for large weights, so iterations start there.
    """
    _, s, right = torch.linalg.svd(z.double().mT, full_matrices=False)
    kept = s > NEGLIGIBLE[z.dtype] * s[0]
    s, right = s[kept, None], right[kept]  # (r, 1), (r, n)
    if weight is None:
        norms = z.double().norm(dim=1)
        weight = float(3 * len(s) * norms.mean() / norms.square().sum())
    penalty = PENALTY
    low, multiplier = right, right / penalty  # scaled by the penalty
    residual, n_iter = math.inf, 0
    sizes = torch.zeros(len(z), dtype=s.dtype, device=s.device)
    while n_iter < max_iter and residual > tol:
        n_iter += 1
        near, sizes = _pull_to_samples(low - multiplier, s, right, weight / penalty, sizes)
        moved = RELAX * near + (1 - RELAX) * low
        before, low = low, _shrink_spectrum(moved + multiplier, 1 / penalty)
        multiplier = multiplier + moved - low
        # The floor is for solutions close to zero, which have no size to compare with.
        size = torch.maximum(near.norm(), low.norm()).clamp(min=1e-3 * len(s) ** 0.5)
        primal = float((near - low).norm() / size)
        dual = float((low - before).norm() / multiplier.norm())
        residual = max(primal, dual)
        if n_iter % LOOK == 0 and n_iter <= max_iter / 2:
            change = min(5.0, max(0.2, (primal / max(dual, 1e-300)) ** 0.5))
            penalty, multiplier = penalty * change, multiplier / change
    return LowRankCodes(right.mT, low, weight, n_iter, residual <= tol)


def _shrink_spectrum(matrix: Tensor, amount: float) -> Tensor:
    """Singular values of (r, n) reduced by `amount`, at least to zero.

    By the r x r Gram matrix, since r << n: the error of small singular values does not matter,
    because those are the ones that vanish.
    """
    values, vectors = torch.linalg.eigh(matrix @ matrix.mT)
    s = values.clamp(min=0).sqrt()
    kept = s > amount
    vectors = vectors[:, kept]
    return (vectors * (1 - amount / s[kept])) @ (vectors.mT @ matrix)


def _pull_to_samples(
    q: Tensor, s: Tensor, v: Tensor, amount: float, sizes: Tensor
) -> tuple[Tensor, Tensor]:
    """Columns r that minimise amount |S (v - r)| + |r - q|^2 / 2, and the norms of S (v - r).

    With b = S (v - q) and the norm h, r = q + amount S b / (h + amount s^2), where h solves
    sum_i b_i^2 / (h + amount s_i^2)^2 = 1, or is zero when the sum is below 1 even there. One over
    the root of the sum is concave in h, so Newton's method converges from any start; `sizes` are
    the norms of the last call.
    """
    b = s * (v - q)  # (r, n)
    load = amount * s.square()  # (r, 1)
    inside = (b / load).square().sum(dim=0) <= 1
    h = torch.where(inside, 0, sizes)
    for _ in range(MOST_NEWTON):
        ratio = 1 / (h + load)
        terms = (b * ratio).square_()
        value = terms.sum(dim=0)
        slope = terms.mul_(ratio).sum(dim=0).clamp(min=torch.finfo(b.dtype).tiny)
        step = torch.where(inside, 0, value * (value.sqrt() - 1) / slope)
        h = (h + step).clamp_(min=0)
        if (step.abs() <= NEWTON_TOL * h).all():
            break
    return q + amount * s * b / (h + load), h
