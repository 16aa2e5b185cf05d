"""Group-sparse codes: samples as sums over few groups of atoms, and the atoms that suit them best.

The code (c_1 .. c_k) of a sample x minimises

    1/2 |x - sum_j D_j c_j|^2 + penalty * sum_j |c_j|,

in which lengths, not squares, make whole groups zero. Each sample is a convex problem of its own.
The groups that take part are known after one product with all atoms; over these, exact steps are
taken group by group, until the conditions of optimality hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kscn.subspaces.bases import rows_times


@dataclass(frozen=True)
class Constants:
    """Numbers that steer the solvers."""

    tile: int = 2048  # samples coded together: their residuals and products stay in cache
    # Steps over the groups that take part, between two looks at all groups; and looks at the most.
    steps: int = 5
    looks: int = 100
    newton: int = 4  # Newton's steps to the length of one group's code: quadratic, from below
    # Sweeps over all atoms in one update at the most, and the relative turn that ends them.
    atom_sweeps: int = 20
    atom_tol: float = 1e-4


CONSTANTS = Constants()


class Atoms:
    """k groups of p atoms, with what coding needs of them.

    Within each group a rotation Q makes the atoms orthogonal. It leaves |c_j| as it is, and turns
    the problem of one group, given the others, into a single equation for |c_j|. `groups` are the
    atoms (k, d, p), `dtype` is that of the samples to code.
    """

    def __init__(self, groups: Tensor, dtype: torch.dtype) -> None:
        groups = groups.double()
        squares, turn = torch.linalg.eigh(groups.mT @ groups)
        self.k, self.d, self.p = groups.shape
        self.squares = squares.clamp(min=0).to(dtype)  # (k, p)
        self.turn = turn.to(dtype)  # (k, p, p)
        self.turned = (groups @ turn).to(dtype)  # (k, d, p)
        self.flat = self.turned.permute(1, 0, 2).reshape(self.d, -1)  # (d, k p)

    def code(self, x: Tensor, penalty: float, tol: float) -> tuple[Tensor, Tensor, Tensor]:
        """Optimal codes (n, k, p) of rows x (n, d), what they leave (n, d), and labels (n,).

        The label is the group with the longest code. Where all are zero, it is the one whose code
        a smaller penalty would make the first to differ from zero.
        """
        parts = [self._code(tile, penalty, tol) for tile in x.split(CONSTANTS.tile)]
        codes, rest, labels = (torch.cat(column) for column in zip(*parts, strict=True))
        # (n, k, p) -> the atoms as they were given.
        return (codes.transpose(0, 1) @ self.turn.mT).transpose(0, 1), rest, labels

    def _code(self, x: Tensor, penalty: float, tol: float) -> tuple[Tensor, Tensor, Tensor]:
        codes = x.new_zeros(len(x), self.k, self.p)
        rest = x.clone()
        todo = torch.arange(len(x), device=x.device)
        first = x.new_empty(0)
        for look in range(CONSTANTS.looks):
            own, left = codes[todo], rest[todo]
            slope = rows_times(left, self.flat).unflatten(1, (self.k, self.p))
            length, steep = own.norm(dim=2), slope.norm(dim=2)  # (m, k)
            held = length > 0
            if look == 0:
                first = steep
                active = torch.zeros_like(held)  # the most promising group goes first, alone
                active.scatter_(1, steep.argmax(dim=1, keepdim=True), True)
            else:
                active = held | (steep > penalty)
                pull = own * (penalty / torch.where(held, length, 1))[:, :, None]
                off = torch.where(held, (slope - pull).norm(dim=2), steep - penalty)
                open_ = off.amax(dim=1) > tol * penalty
                if not open_.any():
                    break
                todo, own, left, active = todo[open_], own[open_], left[open_], active[open_]
            path = [own.clone()]
            for _ in range(CONSTANTS.steps if look else 1):
                self._descend(own, left, active, penalty)
                path.append(own.clone())
            if look:
                own, left = self._leap(path, left, x[todo], penalty)
            codes[todo], rest[todo] = own, left
        lengths = codes.norm(dim=2)
        empty = lengths.amax(dim=1, keepdim=True) == 0
        return codes, rest, torch.where(empty, first, lengths).argmax(dim=1)

    def _leap(
        self, path: list[Tensor], rest: Tensor, x: Tensor, penalty: float
    ) -> tuple[Tensor, Tensor]:
        """Where the steps so far lead to (Anderson's extrapolation), for samples that gain by it.

        Groups that share a direction hand it to one another in ever smaller steps. The mixture of
        the codes on the path whose last steps cancel best, in the sense of least squares, is near
        the end of it.
        """
        codes = torch.stack(path, dim=1).flatten(2)  # (m, steps + 1, k p)
        steps = codes.diff(dim=1).double()
        inner = steps @ steps.mT
        size = inner.diagonal(dim1=1, dim2=2).sum(dim=1).clamp(min=1e-300)
        eye = torch.eye(inner.shape[1], dtype=inner.dtype, device=inner.device)
        inner = inner / size[:, None, None] + 1e-10 * eye
        mix = torch.linalg.solve(inner, torch.ones_like(inner[:, :, :1])).squeeze(2)
        mix = (mix / mix.sum(dim=1, keepdim=True)).to(codes.dtype)
        leapt = (mix[:, None] @ codes[:, 1:]).squeeze(1)
        left = x - rows_times(leapt, self.flat.mT)
        leapt = leapt.unflatten(1, (self.k, self.p))
        gain = self._value(path[-1], rest, penalty) - self._value(leapt, left, penalty)
        better = gain > 0
        return (
            torch.where(better[:, None, None], leapt, path[-1]),
            torch.where(better[:, None], left, rest),
        )

    @staticmethod
    def _value(codes: Tensor, rest: Tensor, penalty: float) -> Tensor:
        """The objective of each sample, shape (n,)."""
        return rest.square().sum(dim=1) / 2 + penalty * codes.norm(dim=2).sum(dim=1)

    def _descend(self, codes: Tensor, rest: Tensor, active: Tensor, penalty: float) -> None:
        """The best code of each active group in turn, the others fixed; in place."""
        for j in range(self.k):
            rows = active[:, j].nonzero().flatten()
            if len(rows) == 0:
                continue
            before = codes[rows, j]
            target = rows_times(rest[rows], self.turned[j]) + before * self.squares[j]
            after = shrink(target, self.squares[j], penalty, before.norm(dim=1))
            codes[rows, j] = after
            rest.index_add_(0, rows, rows_times(before - after, self.turned[j].mT))


def shrink(target: Tensor, squares: Tensor, penalty: float, guess: Tensor) -> Tensor:
    """The rows u that minimise 1/2 sum_l s_l u_l^2 - b u + penalty |u|; all s equal: prox of |u|.

    Zero where |b| <= penalty. Elsewhere u_l = b_l / (s_l + penalty / t) with t = |u|, and t solves
    phi(t) = sum_l (b_l / (s_l t + penalty))^2 = 1. As phi^(-1/2) is concave and increasing,
    Newton's method for it comes from below without overshooting; with equal s it needs one step.
    `target` has a row b (n, p) for each problem, `squares` are s (p,), `guess` (n,) is near |u|
    where that is known.
    """
    length = target.norm(dim=1)
    least = ((length - penalty) / squares.amax().clamp(min=1e-30)).clamp_(min=0)
    t = torch.maximum(guess, least)
    for _ in range(CONSTANTS.newton):
        inverse = torch.outer(t, squares).add_(penalty).reciprocal_()  # (n, p)
        terms = (target * inverse).square_()
        phi = terms.sum(dim=1)
        fall = terms.mul_(inverse) @ squares  # -phi' / 2
        t = torch.maximum(t + (phi * phi.sqrt() - phi) / fall.clamp_(min=1e-30), least)
    scale = t[:, None] / torch.outer(t, squares).add_(penalty)
    return torch.where(length[:, None] > penalty, target * scale, 0)


def update_atoms(groups: Tensor, second: Tensor, mixed: Tensor) -> Tensor:
    """Atoms (k, d, p) that lower 1/2 |X - C D^T|^2, each of length at most 1.

    They come from the sums C^T C (k p, k p) and C^T X (k p, d) over samples, one atom in turn, the
    others fixed: its best place has a closed form, and within the unit ball the nearest point to
    that is best.
    """
    k, d, p = groups.shape
    atoms = groups.double().permute(0, 2, 1).reshape(k * p, d).clone()  # a row is an atom
    weights = second.diagonal()
    used = (weights > 1e-12 * weights.max()).nonzero().flatten().tolist()
    for _ in range(CONSTANTS.atom_sweeps):
        before = atoms.clone()
        for a in used:
            better = atoms[a] + (mixed[a] - second[a] @ atoms) / weights[a]
            atoms[a] = better / better.norm().clamp(min=1)
        if (atoms - before).norm() <= CONSTANTS.atom_tol * before.norm():
            break
    return atoms.view(k, p, d).permute(0, 2, 1).contiguous()
