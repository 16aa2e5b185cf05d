"""Sparse subspace clustering (Elhamifar and Vidal, 2013): each sample by few others, by ADMM.

For sample j with features x_j, over codes c with c_j = 0:

    min |c|_1 + weight_j / 2 |x_j - sum_i c_i x_i|^2

Only inner products of samples enter, so a kernel's feature map serves as well as the samples do.
ADMM splits the codes into a, which carries the squares, and c, which carries the l1 norm. With the
thin SVD  U diag(s) V^T  of the (n, d) samples the a-step is

    a = w + U (g * (u_j - U^T w)),   w = c - multiplier,   g = weight s^2 / (weight s^2 + penalty),

two products with an n x r matrix, r <= d, and no n x n factor: n^2 r a sweep, not n^3. The penalty
only enters through g, so every sample adapts its own, for free.

Samples are independent problems. They are solved a few hundred at a time, those that have converged
make room for the next ones, and of each only the non-zero codes are kept: memory is linear in n.
"""

import warnings
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.constraints import FLAG, Integer, Number, parameter
from kscn.data import Source
from kscn_paper.rivals.base import unit_rows
from kscn_paper.rivals.self_expression import AffinityRival, keep_largest, symmetric_affinity

BLOCK = 512  # samples whose codes are searched at a time
LOOK = 10  # sweeps between two looks at the residuals
RELAX = 1.6  # over-relaxation, the usual remedy for ADMM's slow tail
# Share of `max_iter` in which penalties adapt; fixed ones are sure to converge.
ADAPT = 0.5
CHANGE = 5.0  # largest change of a penalty at a time
# Singular values below this share of the largest carry rounding errors only.
NEGLIGIBLE = {torch.float32: 1e-6, torch.float64: 1e-13}


@dataclass(eq=False, repr=False, kw_only=True)
class SSC(AffinityRival):
    """Sparse subspace clustering: spectral clustering of l1 self-expression.

    Every sample is written by the others, min |c|_1 + weight / 2 |x - sum_i c_i x_i|^2, and samples
    that use each other are close. With features of rank r, a sweep over all samples takes
    4 r n^2 operations and some 150 sweeps are usual; memory is linear in n.

    Parameters
    ----------
    alpha : float, default=20.0
        The weight of a sample is alpha / mu, where mu is its largest inner product with another
        one, so that alpha > 1 is what gives it any code at all. Larger means denser codes and a
        smaller error.
    shared_weight : bool, default=True
        Give all samples the largest of these weights, as the original does. Without, a sample far
        from all others does not make the codes of the rest denser.
    keep : float, default=1.0
        Share of the l1 norm of each code whose largest entries go into the affinity.
    max_iter : int, default=1000
        Most sweeps per sample.
    tol : float, default=1e-3
        Relative primal and dual residual at which a sample's code is done.

    Attributes
    ----------
    codes_ : scipy.sparse.csr_array of shape (n, n)
        Row i writes sample i by the others.
    affinity_ : scipy.sparse.csr_array of shape (n, n)
        |C| + |C|^T, rows of C divided by their largest entry before.
    n_iter_ : int
        Most sweeps that a sample took.

    Examples
    --------
    >>> from kscn import data, metrics
    >>> from kscn_paper.rivals.ssc import SSC
    >>> X, y, _ = data.make_union_of_subspaces(200, 3, 20, 2, random_state=0)
    >>> metrics.clustering_accuracy(y, SSC(3, random_state=0).fit_predict(X))
    1.0
    """

    alpha: float = parameter(20.0, Number(1))
    shared_weight: bool = parameter(True, FLAG)
    keep: float = parameter(1.0, Number(0, 1, closed="both"))
    max_iter: int = parameter(1000, Integer(1))
    tol: float = parameter(1e-3, Number(0))

    def _make_affinity(self, source: Source) -> sparse.csr_array:
        return self._code(unit_rows(self._samples(source)))

    def _code(self, features: Tensor) -> sparse.csr_array:
        """Affinity of samples by their codes."""
        n = len(features)
        largest = largest_products(features)  # (n,)
        # A sample that no other correlates with has no code; weight 0 says so.
        weights = torch.where(largest > 0, self.alpha / largest, 0)
        if self.shared_weight and (largest > 0).any():
            weights = torch.where(largest > 0, self.alpha / largest[largest > 0].min(), 0)
        self.codes_, self.n_iter_, unfinished = sparse_codes(
            Atoms(features),
            weights,
            penalty=self.alpha,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        self._record("codes", sweeps=self.n_iter_, unfinished=unfinished)
        if unfinished:
            warnings.warn(
                f"{unfinished} of {n} samples did not converge in max_iter={self.max_iter} sweeps.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return symmetric_affinity(keep_largest(self.codes_, self.keep))


def largest_products(features: Tensor) -> Tensor:
    """The largest |inner product| of every row with another one, shape (n,)."""
    found = torch.empty_like(features[:, 0])
    for begin in range(0, len(features), BLOCK):
        part = (features[begin : begin + BLOCK] @ features.mT).abs_()
        part.diagonal(begin).zero_()
        found[begin : begin + BLOCK] = part.amax(dim=1)
    return found


# The lasso problems ------------------------------------------------------------------------------


class Atoms:
    """What samples are expressed with, themselves: their thin SVD  U diag(s) V^T."""

    def __init__(self, samples: Tensor) -> None:
        left, s, _ = torch.linalg.svd(samples, full_matrices=False)
        kept = s > NEGLIGIBLE[samples.dtype] * s[0]
        self.left = left[:, kept].contiguous()  # (n, r)
        self.energy = s[kept].square()  # (r,)

    def nearest_energy(self, w: Tensor, own: Tensor, gain: Tensor) -> Tensor:
        """The a-step for rows w (b, n) of samples with `own` rows of U (b, r); overwrites w."""
        inner = gain * (own - w @ self.left)  # (b, r)
        return torch.addmm(w, inner, self.left.mT, out=w)


class _Batch(NamedTuple):
    """The samples being solved, one row each."""

    sample: Tensor  # (b,) which one
    code: Tensor  # (b, n)
    multiplier: Tensor  # (b, n), scaled by the penalty
    weight: Tensor  # (b,)
    penalty: Tensor  # (b,)
    age: Tensor  # (b,) sweeps so far
    own: Tensor  # (b, r), of U

    @classmethod
    def start(cls, atoms: Atoms, weights: Tensor, index: Tensor, penalty: float) -> Self:
        weight = weights[index]
        code, multiplier = weight.new_zeros(2, len(index), len(atoms.left))
        penalties, age = torch.full_like(weight, penalty), torch.zeros_like(index)
        return cls(index, code, multiplier, weight, penalties, age, atoms.left[index])

    def select(self, rows: Tensor) -> Self:
        return type(self)(*(part[rows] for part in self))

    def join(self, other: Self) -> Self:
        return type(self)(*map(torch.cat, zip(self, other, strict=True)))

    def triplets(self) -> tuple[Tensor, Tensor, Tensor]:
        row, column = self.code.nonzero(as_tuple=True)
        # 32-bit indices, which is all that scikit-learn takes from a sparse array.
        return self.sample[row].int().cpu(), column.int().cpu(), self.code[row, column].cpu()


def sparse_codes(
    atoms: Atoms,
    weights: Tensor,
    *,
    penalty: float,
    max_iter: int,
    tol: float,
    block: int = BLOCK,
) -> tuple[sparse.csr_array, int, int]:
    """Solve the lasso problems of all samples: codes (n, n), most sweeps of a sample, unfinished.

    `weights` (n,) are those of the squared errors; 0 leaves a sample without codes. ADMM begins
    with `penalty`, about the size that weight times energy has. A sample is done after `max_iter`
    sweeps, or when its relative primal and dual residuals are below `tol`. `block` samples are
    worked on at a time.
    """
    waiting = (weights > 0).nonzero().flatten()
    batch = _Batch.start(atoms, weights, waiting[:0], penalty)
    found = [batch.triplets()]
    n_iter = unfinished = 0
    while len(batch.sample) or len(waiting):
        room = block - len(batch.sample)
        if room > 0 and len(waiting):
            batch = batch.join(_Batch.start(atoms, weights, waiting[:room], penalty))
            waiting = waiting[room:]
        residual = _sweeps(atoms, batch, adapt_until=int(ADAPT * max_iter))
        converged = residual <= tol
        over = converged | (batch.age >= max_iter)
        unfinished += int((over & ~converged).sum())
        if over.any():
            n_iter = max(n_iter, int(batch.age[over].max()))
            found.append(batch.select(over).triplets())
            batch = batch.select(~over)
    rows, columns, values = (torch.cat(part).numpy() for part in zip(*found, strict=True))
    shape = len(weights), len(weights)
    return sparse.csr_array((values, (rows, columns)), shape=shape), n_iter, unfinished


def _sweeps(atoms: Atoms, batch: _Batch, adapt_until: int) -> Tensor:
    """A few sweeps in place; the larger of both relative residuals of every row, shape (b,)."""
    loaded = batch.weight[:, None] * atoms.energy  # (b, r)
    gain = loaded / (loaded + batch.penalty[:, None])
    bound = (1 / batch.penalty)[:, None]
    here = torch.arange(len(batch.sample), device=bound.device)
    code, multiplier = batch.code, batch.multiplier
    free = torch.empty_like(code)
    for sweep in range(LOOK):
        torch.sub(code, multiplier, out=free)
        free = atoms.nearest_energy(free, batch.own, gain)  # a
        if sweep == LOOK - 1:
            before, quadratic = code.clone(), free.clone()
        # t = relaxed a + multiplier; soft-thresholding splits it into code and new multiplier.
        free.mul_(RELAX).add_(code, alpha=1 - RELAX).add_(multiplier)
        torch.clamp(free, -bound, bound, out=multiplier)
        multiplier[here, batch.sample] = free[here, batch.sample]  # no threshold, but code 0
        torch.sub(free, multiplier, out=code)
    batch.age.add_(LOOK)
    size = torch.maximum(code.norm(dim=1), quadratic.norm(dim=1))
    tiny = torch.finfo(code.dtype).tiny
    primal = quadratic.sub_(code).norm(dim=1) / size.clamp(min=tiny)
    dual = before.sub_(code).norm(dim=1) / multiplier.norm(dim=1).clamp(min=tiny)
    _balance(batch, primal, dual, batch.age < adapt_until)
    return torch.maximum(primal, dual)


def _balance(batch: _Batch, primal: Tensor, dual: Tensor, allowed: Tensor) -> None:
    """Raise a row's penalty where the primal residual lags behind, lower it where the dual does."""
    tiny = torch.finfo(primal.dtype).tiny
    change = (primal.clamp(min=tiny) / dual.clamp(min=tiny)).sqrt().clamp(1 / CHANGE, CHANGE)
    change = torch.where(allowed & ((change > 1.5) | (change < 1 / 1.5)), change, 1.0)
    batch.penalty.mul_(change)
    batch.multiplier.div_(change[:, None])  # it is scaled by the penalty
