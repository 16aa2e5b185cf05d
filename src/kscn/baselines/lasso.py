"""Sparse self-expression of every sample by the others: n lasso problems, one ADMM.

For sample j with features x_j, over codes c with c_j = 0:

    min |c|_1 + weight_j / 2 |x_j - sum_i c_i x_i|^2      (affine: also sum_i c_i = 1)

Only inner products of samples enter, so a kernel's feature map serves as well as the samples do.
ADMM splits the codes into a, which carries the squares, and c, which carries the l1 norm. With the
thin SVD  U diag(s) V^T  of the (m, d) atoms the a-step is

    a = w + U (g * (u_j - U^T w)),   w = c - multiplier,   g = weight s^2 / (weight s^2 + penalty),

two products with an m x r matrix, r <= d, and no m x m factor: n^2 r a sweep, not n^3. The penalty
only enters through g, so every sample adapts its own, for free.

Rows are independent. They are solved a few hundred at a time, those that have converged make room
for the next ones, and of each only the non-zero codes are kept: memory is linear in n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Constants:
    """Numbers that steer ADMM."""

    look: int = 10  # sweeps between two looks at the residuals
    relax: float = 1.6  # over-relaxation, the usual remedy for ADMM's slow tail
    # Share of `max_iter` in which penalties adapt; fixed ones are sure to converge.
    adapt: float = 0.5
    change: float = 5.0  # largest change of a penalty at a time


CONSTANTS = Constants()
# Singular values below this share of the largest carry rounding errors only.
NEGLIGIBLE = {torch.float32: 1e-6, torch.float64: 1e-13}


@dataclass
class Codes:
    """Codes of all samples in triplets: sample `rows[t]` uses atom `columns[t]` with `values[t]`.

    `n_iter` is the largest number of sweeps that a sample took, `unfinished` how many samples were
    not converged after `max_iter`, `unsolved` how many a stop left without codes.
    """

    rows: Tensor
    columns: Tensor
    values: Tensor
    n_iter: int
    unfinished: int
    unsolved: int


class Atoms:
    """What samples are expressed with: the first `n` atoms are the samples themselves.

    Parameters
    ----------
    atoms : Tensor, shape (m, d)
        The samples, perhaps followed by further atoms (unit vectors for outlying entries).
    n : int
        Number of samples.
    affine : bool
        Ask the codes of the first n atoms to sum to one.
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


@dataclass
class _Batch:
    """The rows being solved; all tensors have one row per sample."""

    index: Tensor  # (b,) which sample
    code: Tensor  # (b, m)
    multiplier: Tensor  # (b, m), scaled by the penalty
    weight: Tensor  # (b,)
    penalty: Tensor  # (b,)
    age: Tensor  # (b,) sweeps so far
    own: Tensor = field(repr=False)  # (b, r)

    def select(self, rows: Tensor) -> _Batch:
        return _Batch(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def join(self, other: _Batch) -> _Batch:
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return _Batch(*(torch.cat(pair) for pair in pairs))


def sparse_codes(
    atoms: Atoms,
    weights: Tensor,
    *,
    penalty: float,
    max_iter: int,
    tol: float,
    block: int = 512,
    on_progress: Callable[[int, float], bool] | None = None,
) -> Codes:
    """Solve the lasso problems of all samples.

    Parameters
    ----------
    atoms : Atoms
        What samples are expressed with.
    weights : Tensor, shape (n,)
        Weight of the squared error of each sample; 0 leaves a sample without codes.
    penalty : float
        The penalty of ADMM to begin with, about the size that weight times energy has.
    max_iter : int
        Most sweeps per sample.
    tol : float
        A sample is done when the relative primal and dual residuals are below this.
    block : int
        Samples solved at a time.
    on_progress : callable, optional
        Called with the number of samples done and the largest residual at work; True stops.
    """
    waiting = (weights > 0).nonzero().flatten()
    total = len(waiting)
    batch = _start(atoms, weights, waiting[:0], penalty)
    found = [_triplets(batch)]
    done = n_iter = unfinished = 0
    while len(batch.index) or len(waiting):
        room = block - len(batch.index)
        if room > 0 and len(waiting):
            batch = batch.join(_start(atoms, weights, waiting[:room], penalty))
            waiting = waiting[room:]
        residual = _sweeps(atoms, batch, adapt_until=int(CONSTANTS.adapt * max_iter))
        converged = residual <= tol
        over = converged | (batch.age >= max_iter)
        unfinished += int((over & ~converged).sum())
        if over.any():
            n_iter = max(n_iter, int(batch.age[over].max()))
            found.append(_triplets(batch.select(over)))
            done += int(over.sum())
            batch = batch.select(~over)
        if on_progress is not None and on_progress(done, float(residual.max())):
            break
    rows, columns, values = (torch.cat(part) for part in zip(*found, strict=True))
    return Codes(rows, columns, values, n_iter, unfinished, unsolved=total - done)


def _start(atoms: Atoms, weights: Tensor, index: Tensor, penalty: float) -> _Batch:
    weight = weights[index]
    code = weight.new_zeros(len(index), atoms.m)
    return _Batch(
        index=index,
        code=code,
        multiplier=torch.zeros_like(code),
        weight=weight,
        penalty=torch.full_like(weight, penalty),
        age=torch.zeros_like(index),
        own=atoms.left[index],
    )


def _sweeps(atoms: Atoms, batch: _Batch, adapt_until: int) -> Tensor:
    """A few sweeps in place; the larger of both relative residuals of every row, shape (b,)."""
    look, relax = CONSTANTS.look, CONSTANTS.relax
    loaded = batch.weight[:, None] * atoms.energy  # (b, r)
    gain = loaded / (loaded + batch.penalty[:, None])
    bound = (1 / batch.penalty)[:, None]
    here = torch.arange(len(batch.index), device=bound.device)
    code, multiplier = batch.code, batch.multiplier
    free = torch.empty_like(code)
    for sweep in range(look):
        last = sweep == look - 1
        torch.sub(code, multiplier, out=free)
        free = atoms.nearest_energy(free, batch.own, gain)  # a
        if last:
            before, quadratic = code.clone(), free.clone()
        # t = relaxed a + multiplier; soft-thresholding splits it into code and new multiplier.
        free.mul_(relax).add_(code, alpha=1 - relax).add_(multiplier)
        torch.clamp(free, -bound, bound, out=multiplier)
        multiplier[here, batch.index] = free[here, batch.index]  # no threshold, but code 0
        torch.sub(free, multiplier, out=code)
    batch.age += look
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
    batch.penalty *= change
    batch.multiplier /= change[:, None]  # it is scaled by the penalty


def _triplets(batch: _Batch) -> tuple[Tensor, Tensor, Tensor]:
    row, column = batch.code.nonzero(as_tuple=True)
    # 32-bit indices, which is all that scikit-learn takes from a sparse array.
    return batch.index[row].int().cpu(), column.int().cpu(), batch.code[row, column].cpu()
