"""The closed-form update: leading directions of every cluster from sums over its members.

The best p-dimensional basis for the members of a cluster is the top-p eigenvectors of their d x d
scatter sum (the left singular vectors of the d x n_i matrix, without ever holding it). Sums can be
added over blocks, machines and moves between clusters, which is what makes the method linear in n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kscn.subspaces.bases import Subspaces

# Up to this dimension the full eigendecomposition is cheap beside a pass over the data.
EXACT_DIM = 256


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

        self.weight = zeros(n_clusters)
        self.changed = torch.ones(n_clusters, dtype=torch.bool)  # since the last `subspaces`
        self.second = zeros(n_clusters, dim, dim)
        self.first = zeros(n_clusters, dim) if affine else None

    def add(
        self, z: Tensor, labels: Tensor, weights: Tensor | None = None, sign: float = 1.0
    ) -> None:
        """Add the rows of z (n, d) to the clusters in `labels`; label -1 belongs to none."""
        order = torch.argsort(labels, stable=True)
        counts = torch.bincount(labels + 1, minlength=len(self.weight) + 1).tolist()
        z = z.index_select(0, order)
        weights = None if weights is None else weights[order]
        begin = counts[0]
        for i, count in enumerate(counts[1:]):
            if count == 0:
                continue
            members = z[begin : begin + count]
            if weights is None:
                weighted, total = members, float(count)
            else:
                w = weights[begin : begin + count]
                weighted, total = members * w[:, None], float(w.double().sum())
            self.changed[i] = True
            self.weight[i] += sign * total
            self.second[i].add_(members.mT @ weighted, alpha=sign)
            if self.first is not None:
                self.first[i].add_(weighted.double().sum(dim=0), alpha=sign)
            begin += count

    def _means(self) -> Tensor:
        assert self.first is not None
        return self.first / self.weight.clamp(min=1e-300)[:, None]

    def centred(self, which: Tensor | slice = slice(None)) -> Tensor:
        """Scatter about the mean for affine subspaces, about the origin for linear ones."""
        if self.first is None:
            return self.second[which]
        return self.second[which] - self.first[which, :, None] * self._means()[which, None, :]

    def subspaces(self, dims: Tensor, current: Subspaces | None = None) -> Subspaces:
        """The best subspaces of dimensions `dims` (k,) for these sums.

        Clusters whose sums have not changed since the last call, or that have no members, keep
        their `current` subspace.
        """
        p = int(dims.max())
        stale = self.changed & (self.weight > 1e-12 * self.weight.sum()).cpu()
        if current is None:
            which = torch.arange(len(dims))
            scatter, start = self.centred(), None
        else:
            which = stale.nonzero().flatten()
            scatter, start = self.centred(which), current.bases[which]
        self.changed.zero_()
        fresh = leading_eigenvectors(scatter, p, start)
        fresh = fresh * (torch.arange(p) < dims[which, None])[:, None, :].to(fresh.device)
        offsets = None
        if self.first is not None:
            mean = self._means()[which]
            offsets = mean - (fresh @ (fresh.mT @ mean[:, :, None])).squeeze(-1)
        if current is None:
            return Subspaces(fresh, offsets)
        bases = current.bases.clone()
        bases[which] = fresh.to(bases.dtype)
        if offsets is not None and current.offsets is not None:
            kept = current.offsets.clone()
            kept[which] = offsets.to(kept.dtype)
            offsets = kept
        return Subspaces(bases, offsets)

    def reordered(self, order: Tensor) -> ScatterSums:
        """The same sums under other cluster numbers."""
        out = ScatterSums(0, 0, False)
        out.weight, out.second, out.changed = (
            self.weight[order],
            self.second[order],
            self.changed[order],
        )
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
        return torch.linalg.eigvalsh(self.centred()).flip(-1).clamp(min=0)


def leading_eigenvectors(scatter: Tensor, p: int, start: Tensor | None = None) -> Tensor:
    """Top-p eigenvectors of symmetric positive semidefinite (k, d, d), largest first.

    A full decomposition costs d^3 and is exact. In high dimensions, given a `start` (k, d, p) near
    the answer, one Rayleigh-Ritz step on span[S, AS, A^2 S] takes its place. The span contains S,
    so the energy tr(S^T A S) cannot fall and alternating with assignments still descends.
    """
    d = scatter.shape[-1]
    if start is None or d <= EXACT_DIM or d < 6 * p:
        return torch.linalg.eigh(scatter).eigenvectors[..., -p:].flip(-1)
    start = start.to(scatter.dtype)
    scale = scatter.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=1e-300)[:, None, None]
    once = scatter @ start / scale
    # Orthonormalised step by step: [S, AS, A^2 S] itself is nearly dependent close to the answer.
    first = torch.linalg.qr(start).Q
    second = torch.linalg.qr(once - first @ (first.mT @ once)).Q
    again = scatter @ second / scale
    space = torch.linalg.qr(torch.cat([first, second, again], dim=-1)).Q  # (k, d, 3p)
    small = space.mT @ (scatter @ space)
    rotation = torch.linalg.eigh((small + small.mT) / 2).eigenvectors[..., -p:].flip(-1)
    return torch.linalg.qr(space @ rotation).Q


def keep_nearest(residual: Tensor, labels: Tensor, trim: float, n_clusters: int) -> Tensor:
    """Mask of the members that stay when each cluster drops its farthest share `trim`."""
    keep = torch.ones_like(labels, dtype=torch.bool)
    for i in range(n_clusters):
        rows = (labels == i).nonzero().flatten()
        stay = len(rows) - int(trim * len(rows))
        if stay < len(rows):
            keep[rows[residual[rows].argsort(stable=True)[stay:]]] = False
    return keep
