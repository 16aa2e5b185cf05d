"""k-FSC (Fan, 2021): subspace clustering by factorisation into k groups of atoms.

Codes and atoms are found in turn. Codes are a convex problem for each sample. Atoms need only the
sums C^T C and C^T X over all samples, so these are read in blocks, and memory does not grow with
their number. Neither step raises the objective.

The code (c_1 .. c_k) of a sample x minimises

    1/2 |x - sum_j D_j c_j|^2 + penalty * sum_j |c_j|,

in which lengths, not squares, make whole groups zero. Each sample is a convex problem of its own.
The groups that take part are known after one product with all atoms; over these, exact steps are
taken group by group, until the conditions of optimality hold.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

from kscn.checks import subspace_dim
from kscn.constraints import POSITIVE, Integer, Number, parameter
from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.estimators import checks as check
from kscn.estimators.linear import KSubspaces
from kscn.runtime.blocks import Blocks, check_finite, working_dtype
from kscn.runtime.labels import canonical_order
from kscn.subspaces import ScatterSums
from kscn.subspaces.bases import rows_times
from kscn_paper.rivals.base import Rival, largest_first, subsample, unit_rows

# With this share of empty codes the penalty is too large: it is halved, the fit begins again.
EMPTY_CODES = 0.1
# Violation of the conditions of optimality that codes may keep, as a share of the penalty.
CODE_TOL = 3e-3
TILE = 2048  # samples coded together: their residuals and products stay in cache
# Steps over the groups that take part, between two looks at all groups; and looks at the most.
STEPS, LOOKS = 5, 100
NEWTON = 4  # Newton's steps to the length of one group's code: quadratic, from below
# Sweeps over all atoms in one update at the most, and the relative turn that ends them.
ATOM_SWEEPS, ATOM_TOL = 20, 1e-4


# Codes and atoms ----------------------------------------------------------------------------------


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
        parts = [self._code(tile, penalty, tol) for tile in x.split(TILE)]
        codes, rest, labels = (torch.cat(column) for column in zip(*parts, strict=True))
        # (n, k, p) -> the atoms as they were given.
        return (codes.transpose(0, 1) @ self.turn.mT).transpose(0, 1), rest, labels

    def _code(self, x: Tensor, penalty: float, tol: float) -> tuple[Tensor, Tensor, Tensor]:
        codes = x.new_zeros(len(x), self.k, self.p)
        rest = x.clone()
        todo = torch.arange(len(x), device=x.device)
        first = x.new_empty(0)
        for look in range(LOOKS):
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
            for _ in range(STEPS if look else 1):
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
    for _ in range(NEWTON):
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
    for _ in range(ATOM_SWEEPS):
        before = atoms.clone()
        for a in used:
            better = atoms[a] + (mixed[a] - second[a] @ atoms) / weights[a]
            atoms[a] = better / better.norm().clamp(min=1)
        if (atoms - before).norm() <= ATOM_TOL * before.norm():
            break
    return atoms.view(k, p, d).permute(0, 2, 1).contiguous()


# The method ---------------------------------------------------------------------------------------


@dataclass
class Pass:
    """What one pass over all samples found with the atoms that it had."""

    objective: float
    labels: Tensor  # (n,)
    empty: float  # share of codes that are zero
    second: Tensor  # C^T C, (k p, k p)
    mixed: Tensor  # C^T X, (k p, d)


def code_all(blocks: Blocks, atoms: Atoms, penalty: float) -> Pass:
    """Code all samples, keeping of the codes only sums and labels."""
    width, d = atoms.k * atoms.p, atoms.d
    second = torch.zeros(width, width, dtype=torch.float64, device=blocks.device)
    mixed = torch.zeros(width, d, dtype=torch.float64, device=blocks.device)
    labels = torch.empty(len(blocks), dtype=torch.int32)
    objective, empty = 0.0, 0
    for where, x in blocks:
        codes, rest, label = atoms.code(x, penalty, CODE_TOL)
        labels[where : where + len(x)] = label.cpu()
        lengths = codes.norm(dim=2)
        objective += float(rest.square().sum(dtype=torch.float64)) / 2
        objective += penalty * float(lengths.sum(dtype=torch.float64))
        empty += int(((lengths.amax(dim=1) == 0) & x.any(dim=1)).sum())
        flat = codes.flatten(1)
        second += (flat.mT @ flat).double()
        mixed += (flat.mT @ x).double()
    n = len(blocks)
    return Pass(objective, labels, empty / n, second, mixed)


class UnitBlocks(Blocks):
    """Blocks whose samples have unit length; zero stays zero."""

    def _ready(self, block: Tensor) -> Tensor:
        block = super()._ready(block)
        check_finite(block, self.source.name)
        return unit_rows(block)


@dataclass(eq=False, repr=False, kw_only=True)
class KFSC(Rival):
    """k-factorisation subspace clustering: k groups of atoms, and codes that use few groups.

    Samples are brought to unit length. Then

        1/2 |X - sum_j C_j D_j^T|^2 + penalty * sum over samples and groups of |c_j|

    is minimised over codes C_j and atoms D_j of at most unit length. That asks for few groups, best
    for one: the subspace that a sample lies in. It belongs to the group with its longest code. Time
    is linear in the number of samples, which are read in blocks; no code outlives its block. Images
    are flattened.

    Parameters
    ----------
    subspace_dim : int, default=10
        Atoms in a group.
    penalty : float, default=0.5
        Weight of the length of a code. Where a tenth of the samples gets an empty code, it is
        halved and the fit begins again; `penalty_` is the one used.
    init : {"k-subspaces", "k-means"}, default="k-subspaces"
        How a subsample is clustered at first; atoms are the leading directions of the clusters.
        The paper's start is k-means, which sees no subspace that lies on both sides of the origin.
    n_init : int, default=10
        Starts of k-means, or effort of the search for k-subspaces.
    pool : int, default=10000
        Samples that the start is found on, and what is better done on few before all are read.
    max_iter : int, default=50
        Passes over the samples at most. The history has a record of each, over a subsample at first
        (stage "start"), then over all ("fit").
    tol : float, default=1e-4
        Stop when the objective falls by less than this share.
    batch_size : int, default=16384
        Samples held at a time.

    Attributes
    ----------
    atoms_ : ndarray of shape (k, d, p)
        The groups of atoms.
    penalty_ : float
        The penalty used.
    objective_ : float
        What is minimised, at the atoms found.
    n_iter_ : int
        Updates of the atoms with all samples.

    Examples
    --------
    >>> from kscn import data, metrics
    >>> from kscn_paper.rivals.k_fsc import KFSC
    >>> X, y, _ = data.make_union_of_subspaces(600, 3, 20, 2, noise=0.01, random_state=0)
    >>> model = KFSC(3, subspace_dim=2, random_state=0).fit(X)
    >>> metrics.clustering_accuracy(y, model.labels_)
    1.0
    """

    subspace_dim: int = parameter(10, Integer(1))
    penalty: float = parameter(0.5, POSITIVE)
    init: str = parameter("k-subspaces", "k-means")
    n_init: int = parameter(10, Integer(1))
    pool: int = parameter(10_000, Integer(1))
    max_iter: int = parameter(50, Integer(1))
    tol: float = parameter(1e-4, Number(0))
    batch_size: int = parameter(16384, Integer(1))

    def _check(self, n_samples: int) -> None:
        super()._check(n_samples)
        if self.n_features_in_ < 2:
            raise InputError(
                f"X has {self.n_features_in_} feature(s), but a subspace needs at least 2 features "
                "to lie in."
            )
        subspace_dim(self.subspace_dim, self.n_clusters, self.n_features_in_)

    def _fit(self, source: Source) -> None:
        self._dtype = working_dtype(source.dtype)
        blocks = self._blocks(source)
        # The start is found on a subsample; on all samples where they are few.
        pool = blocks.take(subsample(len(blocks), self.pool, self.random_state_)).cpu()
        start = self._start(pool).to(blocks.device)
        self.penalty_ = float(self.penalty)
        if len(pool) < len(blocks):  # most of the way costs little there
            few = self._blocks(as_source(pool.numpy()))
            start = self._alternate(few, start, "start")[0]
        found, labels = self._alternate(blocks, start, "fit")

        def assign(groups: NDArray) -> tuple[NDArray, float]:
            coded = self._pass(blocks, torch.from_numpy(groups))
            return coded.labels.numpy(), coded.objective

        # Sizes change a little with the last update of the atoms, so these are nearly in order.
        groups = found.cpu().numpy()[canonical_order(labels.numpy(), self.n_clusters)]
        self.atoms_, self.labels_, self.objective_ = largest_first(groups, assign)

    def predict(self, X: Any) -> NDArray:
        """The group with the longest code of every sample, shape (n,)."""
        blocks = self._blocks(self._opened(X))
        return self._pass(blocks, torch.from_numpy(self.atoms_)).labels.numpy()

    def _blocks(self, source: Source) -> Blocks:
        device = check.device(self.device)
        return UnitBlocks(source, self._dtype, device, batch_size=self.batch_size)

    def _start(self, pool: Tensor) -> Tensor:
        """Orthonormal atoms (k, d, p): leading directions of the clusters of a subsample."""
        k, p, seed = self.n_clusters, self.subspace_dim, self.random_state_
        if self.init == "k-subspaces":
            search = KSubspaces(k, subspace_dim=p, n_init=self.n_init, random_state=seed)
            search.set_params(device=self.device)
            return torch.from_numpy(search.fit(pool).subspaces_)
        means = KMeans(k, n_init=self.n_init, random_state=seed % 2**31)
        labels = means.fit_predict(pool.numpy())
        sums = ScatterSums(k, pool.shape[1], affine=False)
        sums.add(pool.double(), torch.from_numpy(labels).long())
        return sums.subspaces(torch.full((k,), p)).bases

    def _pass(self, blocks: Blocks, groups: Tensor) -> Pass:
        atoms = Atoms(groups.to(blocks.device), blocks.dtype)
        return code_all(blocks, atoms, self.penalty_)

    def _alternate(self, blocks: Blocks, start: Tensor, stage: str) -> tuple[Tensor, Tensor]:
        """Code and update in turn; return the atoms and the labels of the last pass."""
        groups, previous, number = start, np.inf, 0
        while number < self.max_iter:
            number += 1
            coded = self._pass(blocks, groups)
            self._record(
                stage,
                iteration=number,
                objective=coded.objective,
                empty=coded.empty,
                penalty=self.penalty_,
            )
            labels = coded.labels
            if coded.empty > EMPTY_CODES:
                self.penalty_ /= 2
                groups, previous, number = start, np.inf, 0
                continue
            groups = update_atoms(groups, coded.second, coded.mixed)
            self.n_iter_ = number
            if previous - coded.objective < self.tol * previous:
                break
            previous = coded.objective
        return groups, labels
