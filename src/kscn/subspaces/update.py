"""The closed-form update: leading directions of every cluster from sums over its members.

The best p-dimensional basis for the members of a cluster is the top-p eigenvectors of their d x d
scatter sum (the left singular vectors of the d x n_i matrix, without ever holding it). Sums can be
added over blocks, machines and moves between clusters, which is what makes the method linear in n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kscn.errors import InputError
from kscn.subspaces.bases import Subspaces
from kscn.subspaces.decompositions import eigh, eigvalsh, orthonormal

GIB = 2**30


SMALL_DIM = 48  # up to here the full eigendecomposition is as fast as anything
# Extra directions carried along: convergence then depends on a gap farther down the spectrum.
GUARD = 20
# Higher degrees let the top direction drown the others in rounding before they are separated.
FILTER_DEGREE = 8
FILTER_CYCLES = 4  # what has not converged by then is decomposed in full
SHIFT = 1e-6  # share of the largest eigenvalue by which a rough step moves all of them
FRESH = 4  # columns drawn anew in a cycle: all others may be orthogonal to a direction
# Share of a wanted direction that the other columns held before: where it is less, the fresh ones
# brought it in, and there may be more where it is from.
KNOWN = 0.8
# Residual as a share of the largest eigenvalue: the result must not depend on the start.
CONVERGED = 1e-9
ROUGH_ROUNDS = 3  # of subspace iteration where about the leading directions will do
# Directions that hold less than this share of the largest are the rounding of float32.
ROUNDING = 1e-7
MOST_BYTES = 8 * GIB  # of sums: beyond, their eigenvectors would take hours anyway


def check_size(n_clusters: int, dim: int) -> None:
    """Refuse a problem whose sums would not fit in memory, before anything is allocated."""
    needed = int(n_clusters) * dim**2 * 8
    if needed > MOST_BYTES:
        raise InputError(
            f"n_clusters={n_clusters} in {dim} features needs {needed / GIB:.1f} GiB for a "
            f"{dim} x {dim} matrix per cluster, more than the limit of {MOST_BYTES / GIB:.0f} GiB; "
            "reduce the features first, for example by PCA."
        )


class ScatterSums:
    """Per-cluster sums of weight, z (affine only) and z z^T, kept in float64.

    Products run in the precision of the samples; adding them up in float64 lets samples leave a
    cluster again (`weight` < 0) over hundreds of iterations without drift.
    """

    def __init__(
        self, n_clusters: int, dim: int, affine: bool, device: torch.device | str = "cpu"
    ) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=device)

        self.dim = dim
        self.weight = zeros(n_clusters)
        self.changed = torch.ones(n_clusters, dtype=torch.bool)  # since the last `subspaces`
        self.frame: Tensor | None = None  # eigenvectors found last, a start for the next time
        self.second = zeros(n_clusters, dim, dim)
        self.first = zeros(n_clusters, dim) if affine else None

    def add(
        self, z: Tensor, labels: Tensor, weights: Tensor | None = None, sign: float = 1.0
    ) -> None:
        """Add the rows of z (n, d) to the clusters in `labels`; label -1 belongs to none.

        Labels and weights may be on the CPU when z is on another device.
        """
        # Narrow integers sort several times faster.
        narrow = torch.int16 if len(self.weight) < 2**15 else torch.int64
        labels = labels.cpu()
        order = torch.argsort(labels.to(narrow), stable=True).to(z.device)
        counts = torch.bincount(labels + 1, minlength=len(self.weight) + 1).tolist()
        z = z.index_select(0, order)
        weights = None if weights is None else weights.to(z.device)[order]
        begin = counts[0]
        for i, count in enumerate(counts[1:]):
            if count == 0:
                continue
            members = z[begin : begin + count]
            weighted = members
            if weights is None:
                self.weight[i] += sign * count
            else:
                w = weights[begin : begin + count]
                weighted = members * w[:, None]
                self.weight[i] += sign * w.double().sum()
            self.changed[i] = True
            self.second[i].add_(members.mT @ weighted, alpha=sign)
            if self.first is not None:
                self.first[i].add_(weighted.double().sum(dim=0), alpha=sign)
            begin += count

    def _means(self) -> Tensor:
        assert self.first is not None
        return self.first / self.weight.clamp(min=1e-300)[:, None]

    def centred(self, which: Tensor | slice = slice(None)) -> Tensor:
        """Scatter about the mean for affine subspaces, about the origin for linear ones."""
        if isinstance(which, Tensor) and len(which) == len(self.second):
            which = slice(None)  # all of them, in order: a view instead of a copy
        if self.first is None:
            return self.second[which]
        return self.second[which] - self.first[which, :, None] * self._means()[which, None, :]

    def subspaces(
        self, dims: Tensor, current: Subspaces | None = None, exact: bool = True
    ) -> Subspaces:
        """The best subspaces of dimensions `dims` (k,) for these sums.

        Not `exact` ones are a step from `current` towards them, at a fraction of the cost; the next
        call goes on from there, and it updates all of them.

        Clusters whose sums have not changed since the last call, or that have no members, keep
        their `current` subspace; those with fewer members than dimensions keep what these members
        say nothing about.
        """
        p = int(dims.max())
        which = torch.arange(len(dims))
        if current is not None:
            occupied = (self.weight > 1e-12 * self.weight.sum()).cpu()
            which = (self.changed & occupied).nonzero().flatten()
        count = min(p + GUARD, self.dim)
        if self.frame is None and current is not None and not exact:
            self.frame = _completed(current.bases.double(), count)
        start, scatter = None if self.frame is None else self.frame[which], self.centred(which)
        if exact or start is None:
            frame = leading_eigenvectors(scatter, count, start, dims[which])
            self.changed.zero_()
        else:
            frame = _power_step(scatter, start)
        if self.frame is None and len(which) == len(dims):
            self.frame = frame
        elif self.frame is not None:
            self.frame[which] = frame
        fresh = frame[..., :p]
        if current is not None and exact:
            fresh = _where_told(scatter, fresh, current.bases[which])
        used = torch.arange(p, device=dims.device) < dims[which, None]  # (k, p)
        fresh = fresh * used[:, None, :].to(fresh.device)
        found = Subspaces.through(None if self.first is None else self._means()[which], fresh)
        return found if current is None else current.replaced(which, found)

    def __getitem__(self, order: Tensor) -> ScatterSums:
        """The same sums under other cluster numbers."""
        out = ScatterSums(0, 0, False)
        out.dim, out.changed = self.dim, self.changed[order]
        out.weight, out.second = self.weight[order], self.second[order]
        out.first = None if self.first is None else self.first[order]
        return out

    def objective(self, bases: Tensor) -> float:
        """Sum of squared distances of all members to their (mean-centred) subspace."""
        scatter = self.centred()
        bases = bases.double()
        held = (bases * (scatter @ bases)).sum()
        return max(float(scatter.diagonal(dim1=1, dim2=2).sum() - held), 0.0)

    def spectra(self) -> Tensor:
        """Eigenvalues of every cluster's scatter, descending, shape (k, d)."""
        return eigvalsh(self.centred()).flip(-1).clamp(min=0)


def leading_eigenvectors(
    scatter: Tensor, count: int, start: Tensor | None = None, wanted: Tensor | None = None
) -> Tensor:
    """Top eigenvectors of symmetric positive semidefinite (k, d, d), largest first: (k, d, count).

    A full decomposition costs d^3. From a `start` (k, d, count) near the answer, Chebyshev-filtered
    subspace iteration is several times cheaper: a polynomial of the matrix that is small on the
    lower part of the spectrum and large on the upper blows the unwanted directions away. The first
    `wanted` (k,) vectors of each are iterated to nine digits, so these depend on the matrix and not
    on the start; what has not converged after a few cycles is decomposed in full.
    """
    d = scatter.shape[-1]
    if start is None or d <= max(SMALL_DIM, 3 * count):
        return eigh(scatter)[1][..., -count:].flip(-1)
    vectors = start.clone()
    wanted = torch.full((len(scatter),), count) if wanted is None else wanted
    todo = torch.arange(len(scatter))
    for _ in range(FILTER_CYCLES):
        if len(todo) == 0:
            return vectors
        part = scatter if len(todo) == len(scatter) else scatter[todo]
        vectors[todo], error = _filter_cycle(part, vectors[todo], wanted[todo])
        todo = todo[(error > CONVERGED).cpu()]
    if len(todo):
        vectors[todo] = eigh(scatter[todo])[1][..., -count:].flip(-1)
    return vectors


def leading_directions(scatter: Tensor, dim: int, rounds: int = ROUGH_ROUNDS) -> Tensor:
    """An orthonormal basis of about the `dim` leading directions of matrices (..., d, d).

    Of a few rounds of subspace iteration: it tells clusters apart as well as the eigenvectors do,
    and where many directions are wanted it takes a tenth of the time.
    """
    d = scatter.shape[-1]
    if d <= SMALL_DIM:
        return eigh(scatter)[1][..., -dim:]
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(d, dim, generator=generator, dtype=scatter.dtype).to(scatter.device)
    vectors = scatter @ start
    for _ in range(rounds - 1):
        vectors = scatter @ orthonormal(vectors)
    return orthonormal(vectors)


def _completed(bases: Tensor, count: int) -> Tensor:
    """Bases (k, d, p) with `count` columns: random ones in the place of those that are zero."""
    _, d, p = bases.shape
    generator = torch.Generator().manual_seed(0)
    spare = torch.randn(d, count, generator=generator, dtype=bases.dtype) / d**0.5
    bases = torch.nn.functional.pad(bases, (0, count - p))
    found = torch.where((bases != 0).any(dim=1, keepdim=True), bases, spare.to(bases.device))
    return orthonormal(found)


def _power_step(scatter: Tensor, vectors: Tensor) -> Tensor:
    """orth(A V), with V rotated so that its best directions come first: one product with A.

    A is positive semidefinite, so that its leading columns hold no less energy than before. A small
    shift lets directions that hold nothing stay as they are.
    """
    image = scatter @ vectors
    small = vectors.mT @ image
    values, rotation = eigh((small + small.mT) / 2)
    shift = SHIFT * values[..., -1].clamp(min=1e-300)[..., None, None]
    return orthonormal((image + shift * vectors) @ rotation.flip(-1))


def _filter_cycle(scatter: Tensor, vectors: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """One filter and Rayleigh-Ritz step; also the relative residual of the `wanted` (k,) first."""
    # The last columns are drawn anew (always the same): a direction to which all the others happen
    # to be orthogonal would stay invisible to them for ever.
    generator = torch.Generator().manual_seed(0)
    fresh = torch.randn(vectors.shape[-2], FRESH, generator=generator, dtype=vectors.dtype)
    fresh = fresh.to(vectors.device) / len(fresh) ** 0.5
    vectors = torch.cat([vectors[..., :-FRESH], fresh.expand(len(vectors), -1, -1)], dim=-1)
    # The unwanted part of the spectrum is [0, cut]; the top value only scales the recurrence.
    values = (vectors * (scatter @ vectors)).sum(dim=-2)  # Rayleigh quotients (k, count)
    top = values.amax(dim=-1).clamp(min=1e-300)[:, None, None]
    cut = values[..., :-FRESH].amin(dim=-1)[:, None, None].clamp(min=1e-6 * top)
    half = cut / 2
    sigma = first = half / (top - half)
    before, now = vectors, (scatter @ vectors - half * vectors) * (sigma / half)
    for _ in range(FILTER_DEGREE - 1):
        following = 1 / (2 / first - sigma)
        step = 2 * (scatter @ now - half * now) * (following / half) - sigma * following * before
        before, now, sigma = now, step, following
    space = orthonormal(now)
    image = scatter @ space
    small = space.mT @ image
    values, rotation = eigh((small + small.mT) / 2)
    values, rotation = values.flip(-1), rotation.flip(-1)
    found = space @ rotation
    p = int(wanted.max())
    residual = image @ rotation[..., :p] - found[..., :p] * values[..., None, :p]
    error = torch.linalg.vector_norm(residual, dim=-2) / values[..., :1].clamp(min=1e-300)
    # A wanted direction that only the fresh columns brought in: there may be more where it is from.
    known = (vectors[..., :-FRESH].mT @ found[..., :p]).square().sum(dim=-2)
    error = torch.where(known < KNOWN, torch.inf, error)
    among = torch.arange(p, device=error.device) < wanted.to(error.device)[:, None]
    return found, torch.where(among, error, 0.0).amax(dim=-1)


def _where_told(scatter: Tensor, fresh: Tensor, current: Tensor) -> Tensor:
    """`fresh` eigenvectors (k, d, p), with directions of `current` for those that hold nothing.

    Where eigenvalues are zero eigenvectors are arbitrary: rounding would choose them, which is not
    the same on every device.
    """
    values = (fresh * (scatter @ fresh)).sum(dim=-2)
    told = (values > ROUNDING * values[:, :1]).sum(dim=1).tolist()
    p = fresh.shape[-1]
    for i, count in enumerate(told):
        if count < p:
            known, before = fresh[i, :, :count], current[i].to(fresh)
            rest = before - known @ (known.mT @ before)
            kept = torch.linalg.svd(rest, full_matrices=False).U[:, : p - count]
            fresh = fresh.clone()
            fresh[i, :, count:] = kept
    return fresh


def keep_nearest(residual: Tensor, labels: Tensor, trim: float, n_clusters: int) -> Tensor:
    """Mask of the members that stay when each cluster drops its farthest share `trim`."""
    labels = labels.long()
    near = residual.argsort(stable=True)
    order = near[labels[near].argsort(stable=True)]  # by cluster, and the nearest first in each
    sizes = torch.zeros(n_clusters + 1, dtype=torch.long, device=labels.device)
    sizes.index_add_(0, labels + 1, torch.ones_like(labels))  # label -1 belongs to none
    cluster = labels[order] + 1
    rank = torch.arange(len(labels), device=labels.device) - (sizes.cumsum(0) - sizes)[cluster]
    stay = sizes - (trim * sizes.double()).long()
    stay[0] = sizes[0]
    return torch.empty_like(labels, dtype=torch.bool).scatter_(0, order, rank < stay[cluster])
