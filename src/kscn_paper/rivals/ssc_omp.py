"""SSC by orthogonal matching pursuit (You, Robinson and Vidal, 2016): greedy and sparse."""

from dataclasses import dataclass

import torch
from scipy import sparse
from torch import Tensor

from kscn.constraints import Integer, Number, parameter
from kscn.data import Source
from kscn_paper.rivals.base import unit_rows
from kscn_paper.rivals.self_expression import AffinityRival, symmetric_affinity

ENTRIES = 1 << 23  # most of them in the block x n matrix of correlations
# A new atom whose part outside the span of the chosen ones is shorter than this adds nothing.
DEPENDENT = 1e-5


@dataclass(eq=False, repr=False, kw_only=True)
class SSCOMP(AffinityRival):
    """Subspace clustering by orthogonal matching pursuit: a few neighbours each, found greedily.

    Every sample of unit norm picks the other one that correlates most with what its picks so far
    leave unexplained, until `n_nonzero` are picked or little is left. That takes 2 d n^2 operations
    per pick; memory is linear in n, since correlations are made for a block of samples at a time.

    Parameters
    ----------
    n_nonzero : int, default=10
        Most picks per sample: about the dimension of the subspaces.
    tol : float, default=1e-6
        A sample is done when the norm of what is left of it (of 1) is below this.
    max_samples : int, default=200000
        More samples are refused: time grows with their square.

    Attributes
    ----------
    codes_ : scipy.sparse.csr_array of shape (n, n)
        Row i writes sample i by the others.
    n_iter_ : int
        Most picks that a sample took.
    """

    n_nonzero: int = parameter(10, Integer(1))
    tol: float = parameter(1e-6, Number(0, 1))
    max_samples: int = parameter(200_000, Integer(1))

    def _make_affinity(self, source: Source) -> sparse.csr_array:
        z = unit_rows(self._samples(source))
        self.codes_, self.n_iter_ = greedy_codes(z, self.n_nonzero, self.tol)
        self._record("codes", picks=self.n_iter_)
        return symmetric_affinity(self.codes_)


def greedy_codes(
    z: Tensor, n_nonzero: int, tol: float, entries: int = ENTRIES
) -> tuple[sparse.csr_array, int]:
    """Orthogonal matching pursuit of every row of z (n, d), of unit norm, by the other rows.

    Returns the codes (n, n) and the most picks of a sample.
    """
    n, d = z.shape
    most = min(n_nonzero, n - 1, d)
    block = max(1, entries // n)
    parts: list[tuple[Tensor, ...]] = []
    picks = 0
    for begin in range(0, n, block):
        rows = torch.arange(begin, min(begin + block, n), device=z.device)
        chosen, values, used = _pursue(z, rows, most, tol)
        where, pick = used.nonzero(as_tuple=True)
        # 32-bit indices, which is all that scikit-learn takes.
        triplets = (rows[where].int(), chosen[where, pick].int(), values[where, pick])
        parts.append(tuple(part.cpu() for part in triplets))
        picks = max(picks, int(used.sum(dim=1).max()))
    row, column, value = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
    return sparse.csr_array((value, (row, column)), shape=(n, n)), picks


def _pursue(z: Tensor, rows: Tensor, most: int, tol: float) -> tuple[Tensor, Tensor, Tensor]:
    """Picks, their coefficients and which of them count, each (b, most), for samples `rows`.

    The picks of a sample are made orthonormal as they come (Gram-Schmidt, twice), Q R, so what is
    left is updated by one projection and the coefficients follow from R at the end.
    """
    b, d = len(rows), z.shape[1]
    here = torch.arange(b, device=z.device)
    left = z[rows].clone()  # (b, d)
    frame = z.new_zeros(b, most, d)  # rows of Q^T
    triangle = z.new_zeros(b, most, most)
    weights = z.new_zeros(b, most)  # Q^T x
    chosen = torch.zeros(b, most, dtype=torch.long, device=z.device)
    used = torch.zeros(b, most, dtype=torch.bool, device=z.device)
    active = left.norm(dim=1) > tol
    for pick in range(most):
        match = (left @ z.mT).abs_()  # (b, n)
        match[here, rows] = -1
        match.scatter_(1, chosen[:, :pick], -1)
        best = match.argmax(dim=1)
        atom = z[best]
        new = atom.clone()
        for _ in range(2):
            inner = torch.einsum("bpd,bd->bp", frame[:, :pick], new)
            triangle[:, :pick, pick] += inner
            new -= torch.einsum("bpd,bp->bd", frame[:, :pick], inner)
        length = new.norm(dim=1)
        active = active & (length > DEPENDENT)
        new /= length.clamp(min=torch.finfo(z.dtype).tiny)[:, None]
        new *= active[:, None]
        frame[:, pick], chosen[:, pick], used[:, pick] = new, best, active
        triangle[:, pick, pick] = torch.where(active, length, 1)
        weights[:, pick] = torch.einsum("bd,bd->b", new, left)
        left -= weights[:, pick, None] * new
        active = active & (left.norm(dim=1) > tol)
        if not active.any():
            break
    else:
        pick = most - 1
    triangle[:, pick + 1 :, pick + 1 :] = torch.eye(most - pick - 1, dtype=z.dtype).to(z)
    values = torch.linalg.solve_triangular(triangle, weights[:, :, None], upper=True)[:, :, 0]
    return chosen, values, used
