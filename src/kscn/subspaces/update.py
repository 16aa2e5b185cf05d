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
MOST_BYTES = 8 * GIB  # of sums: beyond, their eigenvectors would take hours anyway
SMALL_DIM = 48  # up to here the full eigendecomposition is as fast as anything
KRYLOV = 2  # products with A in a step towards its eigenvectors
ROUGH_ROUNDS = 3  # of subspace iteration where about the leading directions will do
# Share of the trace that current directions are given on top of what they hold. It decides where
# members say nothing, and lies above the rounding of sums and below all that matters.
HELD = 1e-9


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
    cluster again (`sign` < 0) over hundreds of iterations without drift.
    """

    def __init__(
        self, n_clusters: int, dim: int, affine: bool, device: torch.device | str = "cpu"
    ) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=device)

        self.weight = zeros(n_clusters)
        self.second = zeros(n_clusters, dim, dim)
        self.first = zeros(n_clusters, dim) if affine else None

    @classmethod
    def of(cls, weight: Tensor, second: Tensor, first: Tensor | None) -> ScatterSums:
        """Sums that are known: (k,), (k, d, d) and, for affine subspaces, (k, d)."""
        out = cls(0, 0, False)
        out.weight, out.second, out.first = weight, second, first
        return out

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
        for i, rows in enumerate(order.split(counts), start=-1):
            if i < 0 or len(rows) == 0:
                continue
            members = weighted = z.index_select(0, rows)
            total = torch.tensor(float(len(rows)), dtype=torch.float64)
            if weights is not None:
                w = weights.to(z)[rows]
                weighted, total = members * w[:, None], w.sum(dtype=torch.float64)
            self.weight[i] += sign * total
            self.second[i].add_(members.mT @ weighted, alpha=sign)
            if self.first is not None:
                self.first[i].add_(weighted.sum(dim=0, dtype=torch.float64), alpha=sign)

    def _means(self) -> Tensor | None:
        if self.first is None:
            return None
        return self.first / self.weight.clamp(min=1e-300)[:, None]

    def centred(self) -> Tensor:
        """Scatter about the mean for affine subspaces, about the origin for linear ones."""
        means = self._means()
        if self.first is None or means is None:
            return self.second
        return self.second - self.first[:, :, None] * means[:, None, :]

    def subspaces(
        self, dims: Tensor, current: Subspaces | None = None, exact: bool = True
    ) -> Subspaces:
        """The best subspaces of dimensions `dims` (k,) for these sums.

        Not `exact` ones are a step from `current` towards them, at a fraction of the cost. Where
        the members say nothing, since there are none or fewer than dimensions, directions of
        `current` stay: rounding would choose others, which is not the same on every device.
        """
        scatter, means, p = self.centred(), self._means(), int(dims.max())
        used = torch.arange(p, device=scatter.device) < dims.to(scatter.device)[:, None]  # (k, p)
        if current is None:
            return Subspaces.through(means, _leading(scatter, p) * used[:, None])
        old = current.bases.double()
        if exact:
            held = HELD * scatter.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None]
            bases = _leading(scatter + held * (old @ old.mT), p)
        else:
            bases = _refined(scatter, old)
        found = Subspaces.through(means, bases * used[:, None])
        occupied = (self.weight > 1e-12 * self.weight.sum()).nonzero().flatten()
        return current.replaced(occupied, found[occupied])

    def __getitem__(self, order: Tensor) -> ScatterSums:
        """The same sums under other cluster numbers."""
        first = None if self.first is None else self.first[order]
        return ScatterSums.of(self.weight[order], self.second[order], first)

    def objective(self, bases: Tensor) -> float:
        """Sum of squared distances of all members to their (mean-centred) subspace."""
        scatter = self.centred()
        bases = bases.double()
        held = (bases * (scatter @ bases)).sum()
        return max(float(scatter.diagonal(dim1=1, dim2=2).sum() - held), 0.0)

    def spectra(self) -> Tensor:
        """Eigenvalues of every cluster's scatter, descending, shape (k, d)."""
        return eigvalsh(self.centred()).flip(-1).clamp(min=0)


def _leading(scatter: Tensor, p: int) -> Tensor:
    """The eigenvectors (k, d, p) of the largest eigenvalues, from the largest on."""
    return eigh(scatter)[1].flip(-1)[..., :p]


def _refined(scatter: Tensor, bases: Tensor) -> Tensor:
    """The best directions (k, d, p) in the span of S, A S, A A S, ...: no less energy than in S."""
    blocks = [bases]
    for _ in range(KRYLOV):
        blocks.append(orthonormal(scatter @ blocks[-1]))
    space = orthonormal(torch.cat(blocks, dim=-1))
    return space @ _leading(space.mT @ scatter @ space, bases.shape[-1])


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
