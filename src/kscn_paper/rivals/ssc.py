"""Sparse subspace clustering (Elhamifar and Vidal, 2013): each sample by few others, by ADMM.

For sample j with features x_j, over codes c with c_j = 0:

    min |c|_1 + weight_j / 2 |x_j - sum_i c_i x_i|^2      (affine: also sum_i c_i = 1)

Only inner products of samples enter, so a kernel's feature map serves as well as the samples do.
ADMM splits the codes into a, which carries the squares, and c, which carries the l1 norm. With the
thin SVD  U diag(s) V^T  of the (m, d) atoms the a-step is

    a = w + U (g * (u_j - U^T w)),   w = c - multiplier,   g = weight s^2 / (weight s^2 + penalty),

two products with an m x r matrix, r <= d, and no m x m factor: n^2 r a sweep, not n^3. The penalty
only enters through g, so every sample adapts its own, for free.

Samples are independent problems. They are solved a few hundred at a time, those that have converged
make room for the next ones, and of each only the non-zero codes are kept: memory is linear in n.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.constraints import Integer, Number, parameter
from kscn.data import Source
from kscn_paper.rivals.affinity import COSTS, AffinityBaseline, Cost
from kscn_paper.rivals.base import unit_rows
from kscn_paper.rivals.self_expression import keep_largest, symmetric_affinity


@dataclass(frozen=True)
class Constants:
    """Numbers that steer the coding and the estimate of its cost."""

    block: int = 512  # samples whose codes are searched at a time
    matrices: int = 7  # n x block matrices that takes
    typical_sweeps: int = 150  # that a sample takes on average
    look: int = 10  # sweeps between two looks at the residuals
    relax: float = 1.6  # over-relaxation, the usual remedy for ADMM's slow tail
    # Share of `max_iter` in which penalties adapt; fixed ones are sure to converge.
    adapt: float = 0.5
    change: float = 5.0  # largest change of a penalty at a time


CONSTANTS = Constants()
# Singular values below this share of the largest carry rounding errors only.
NEGLIGIBLE = {torch.float32: 1e-6, torch.float64: 1e-13}


@dataclass(eq=False, repr=False, kw_only=True)
class SparseCoder(AffinityBaseline):
    """Affinities from the l1 self-expression of features: the part that SSC and KSSC share.

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
    """

    alpha: float = parameter(20.0, Number(1))
    shared_weight: bool = parameter(True, bool)
    keep: float = parameter(1.0, Number(0, 1, closed="both"))
    max_iter: int = parameter(1000, Integer(1))
    tol: float = parameter(1e-3, Number(0))

    def _coding_cost(self, n: int, r: int, itemsize: int) -> Cost:
        """The cost of coding n samples with features of rank r."""
        memory = itemsize * n * (CONSTANTS.matrices * min(CONSTANTS.block, n) + 4 * r)
        return Cost(memory, n**2 * CONSTANTS.typical_sweeps * (4.0 * r + 8 * COSTS.one_pass))

    def _code(
        self, features: Tensor, further: Tensor | None = None, affine: bool = False
    ) -> sparse.csr_array:
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
    outliers : float or None, default=None
        Also explain outlying entries, by a sparse error e that costs outliers / max_i |x_i|_1
        times |e|_1. Above 1; the larger, the fewer entries count as outlying. 5 is a good start.
    affine : bool, default=False
        Codes sum to one, for affine subspaces. Samples then keep their norm.
    normalize : bool, default=True
        Bring samples to unit norm first (unless affine).

    Examples
    --------
    >>> from kscn import data, metrics
    >>> from kscn_paper.rivals.ssc import SSC
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


# The lasso problems ------------------------------------------------------------------------------


class Atoms:
    """What samples are expressed with: the first n of the atoms (m, d) are the samples themselves.

    `affine` asks the codes of the first n to sum to one.
    """

    def __init__(self, atoms: Tensor, n: int, affine: bool = False) -> None:
        left, s, _ = torch.linalg.svd(atoms, full_matrices=False)
        kept = s > NEGLIGIBLE[atoms.dtype] * s[0]
        self.left = left[:, kept].contiguous()  # (m, r)
        self.energy = s[kept].square()  # (r,)
        self.n, self.m = n, len(atoms)
        self.counted: Tensor | None = None
        if affine:
            self.counted = torch.zeros(self.m, dtype=atoms.dtype, device=atoms.device)
            self.counted[:n] = 1
            self.counted_left = self.counted @ self.left  # (r,)

    def nearest_energy(self, w: Tensor, own: Tensor, gain: Tensor) -> Tensor:
        """The a-step for rows w (b, m) of samples with `own` rows of U (b, r); overwrites w."""
        inner = gain * (own - w @ self.left)  # (b, r)
        if self.counted is None:
            return torch.addmm(w, inner, self.left.mT, out=w)
        # The step that restores the sum: along M^-1 1, where M is the matrix of the quadratic.
        total = w @ self.counted + inner @ self.counted_left
        along = gain * self.counted_left  # (b, r)
        step = (1 - total) / (self.n - along @ self.counted_left)
        inner.sub_(step[:, None] * along)
        torch.addmm(w, inner, self.left.mT, out=w)
        return w.addcmul_(step[:, None], self.counted)


class Codes(NamedTuple):
    """Codes of all samples in triplets: sample `rows[t]` uses atom `columns[t]` by `values[t]`."""

    rows: Tensor
    columns: Tensor
    values: Tensor
    n_iter: int  # most sweeps that a sample took
    unfinished: int  # samples not converged after `max_iter` sweeps
    unsolved: int  # samples that a stop left without codes


class _Batch(NamedTuple):
    """The samples being solved, one row each."""

    sample: Tensor  # (b,) which one
    code: Tensor  # (b, m)
    multiplier: Tensor  # (b, m), scaled by the penalty
    weight: Tensor  # (b,)
    penalty: Tensor  # (b,)
    age: Tensor  # (b,) sweeps so far
    own: Tensor  # (b, r), of U

    @classmethod
    def start(cls, atoms: Atoms, weights: Tensor, index: Tensor, penalty: float) -> _Batch:
        weight = weights[index]
        code, multiplier = weight.new_zeros(2, len(index), atoms.m)
        penalties, age = torch.full_like(weight, penalty), torch.zeros_like(index)
        return cls(index, code, multiplier, weight, penalties, age, atoms.left[index])

    def select(self, rows: Tensor) -> _Batch:
        return _Batch(*(part[rows] for part in self))

    def join(self, other: _Batch) -> _Batch:
        return _Batch(*map(torch.cat, zip(self, other, strict=True)))

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
    on_progress: Callable[[int, float], bool] | None = None,
) -> Codes:
    """Solve the lasso problems of all samples.

    `weights` (n,) are those of the squared errors; 0 leaves a sample without codes. ADMM begins
    with `penalty`, about the size that weight times energy has. A sample is done after `max_iter`
    sweeps, or when its relative primal and dual residuals are below `tol`. `on_progress` is called
    with the number of samples done and the largest residual at work; True stops.
    """
    waiting = (weights > 0).nonzero().flatten()
    total = len(waiting)
    batch = _Batch.start(atoms, weights, waiting[:0], penalty)
    found = [batch.triplets()]
    done = n_iter = unfinished = 0
    while len(batch.sample) or len(waiting):
        room = CONSTANTS.block - len(batch.sample)
        if room > 0 and len(waiting):
            batch = batch.join(_Batch.start(atoms, weights, waiting[:room], penalty))
            waiting = waiting[room:]
        residual = _sweeps(atoms, batch, adapt_until=int(CONSTANTS.adapt * max_iter))
        converged = residual <= tol
        over = converged | (batch.age >= max_iter)
        unfinished += int((over & ~converged).sum())
        if over.any():
            n_iter = max(n_iter, int(batch.age[over].max()))
            found.append(batch.select(over).triplets())
            done += int(over.sum())
            batch = batch.select(~over)
        if on_progress is not None and on_progress(done, float(residual.max())):
            break
    rows, columns, values = (torch.cat(part) for part in zip(*found, strict=True))
    return Codes(rows, columns, values, n_iter, unfinished, unsolved=total - done)


def _sweeps(atoms: Atoms, batch: _Batch, adapt_until: int) -> Tensor:
    """A few sweeps in place; the larger of both relative residuals of every row, shape (b,)."""
    look, relax = CONSTANTS.look, CONSTANTS.relax
    loaded = batch.weight[:, None] * atoms.energy  # (b, r)
    gain = loaded / (loaded + batch.penalty[:, None])
    bound = (1 / batch.penalty)[:, None]
    here = torch.arange(len(batch.sample), device=bound.device)
    code, multiplier = batch.code, batch.multiplier
    free = torch.empty_like(code)
    for sweep in range(look):
        torch.sub(code, multiplier, out=free)
        free = atoms.nearest_energy(free, batch.own, gain)  # a
        if sweep == look - 1:
            before, quadratic = code.clone(), free.clone()
        # t = relaxed a + multiplier; soft-thresholding splits it into code and new multiplier.
        free.mul_(relax).add_(code, alpha=1 - relax).add_(multiplier)
        torch.clamp(free, -bound, bound, out=multiplier)
        multiplier[here, batch.sample] = free[here, batch.sample]  # no threshold, but code 0
        torch.sub(free, multiplier, out=code)
    batch.age.add_(look)
    size = torch.maximum(code.norm(dim=1), quadratic.norm(dim=1))
    tiny = torch.finfo(code.dtype).tiny
    primal = quadratic.sub_(code).norm(dim=1) / size.clamp(min=tiny)
    dual = before.sub_(code).norm(dim=1) / multiplier.norm(dim=1).clamp(min=tiny)
    _balance(batch, primal, dual, batch.age < adapt_until)
    return torch.maximum(primal, dual)


def _balance(batch: _Batch, primal: Tensor, dual: Tensor, allowed: Tensor) -> None:
    """Raise a row's penalty where the primal residual lags behind, lower it where the dual does."""
    tiny = torch.finfo(primal.dtype).tiny
    most = CONSTANTS.change
    change = (primal.clamp(min=tiny) / dual.clamp(min=tiny)).sqrt().clamp(1 / most, most)
    change = torch.where(allowed & ((change > 1.5) | (change < 1 / 1.5)), change, 1.0)
    batch.penalty.mul_(change)
    batch.multiplier.div_(change[:, None])  # it is scaled by the penalty
