"""Subspaces that grow when the clusters are known, one half of the samples judged by the other.

A search wants small subspaces: large ones overlap, and then any start is a minimum. But once the
clusters are nearly right, larger subspaces tell them apart better: the directions that come in late
are those of the rare members, and these are the ones that small subspaces mistake.

A sample that has helped to shape a large subspace lies near it, right or wrong, and would stay
where it is. So there are two sets of subspaces, from the even and from the odd rows, and each
sample is assigned by the set that it had no part in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from kscn.subspaces import ScatterSums, Subspaces
from kscn.training.blocks import Blocks

# Dimensions double until they reach a third of the space, or until clusters have this many members
# per dimension (twice as many as each half has).
SHARE, MEMBERS_PER_DIM = 3, 10
# Assignments at every dimension.
PASSES = 3
# Samples whose projections are held at a time.
ROWS = 8192


class Grown(NamedTuple):
    """Subspaces of the even rows, of the odd rows, and of all."""

    even: Subspaces
    odd: Subspaces
    whole: Subspaces


class Across(NamedTuple):
    """Where samples belong by the half that they are not in, shape (n,) each."""

    labels: Tensor
    nearest: Tensor  # squared distance to that subspace
    second: Tensor  # and to the next one


def dimensions(first: int, members: int, ambient: int) -> list[int]:
    """The dimensions to go through from `first` on, for clusters of about so many members."""
    last = min(ambient // SHARE, members // MEMBERS_PER_DIM)
    found = []
    while first < last:
        first = min(2 * first, last)
        found.append(first)
    return found


def grow(
    z: Tensor,
    odd: Tensor,
    labels: Tensor,
    k: int,
    dims: list[int],
    report: Callable[[int, int], object] = lambda *_: None,
) -> Grown:
    """Let the subspaces of k clusters have the dimensions `dims`, one after the other.

    Parameters
    ----------
    z : Tensor, shape (m, d)
        Samples.
    odd : Tensor of bool, shape (m,)
        Which half each is in.
    labels : Tensor, shape (m,)
        Their clusters.
    k : int
        How many clusters there are.
    dims : list of int
        Of `dimensions`, at least one.
    report : callable
        Hears (dimensions done, of how many).
    """
    for number, dim in enumerate(dims, start=1):
        for _ in range(PASSES):
            even, uneven = (_subspaces(sums, dim, z) for sums in _sums(z, odd, labels, k))
            labels = _assigned(z, odd, even, uneven).labels
        report(number, len(dims))
    whole = _subspaces(_added(*_sums(z, odd, labels, k)), dims[-1], z)
    return Grown(even, uneven, whole)


def assign_across(blocks: Blocks, first: int, grown: Grown) -> Across:
    """Assign samples by the half that they are not in; `first` is the number of the first."""
    parts = []
    for start, z in blocks:
        rows = torch.arange(first + start, first + start + len(z), device=z.device)
        parts.append(_assigned(z, rows % 2 == 1, grown.even, grown.odd))
    return Across(*(torch.cat(pieces) for pieces in zip(*parts, strict=True)))


def _assigned(z: Tensor, odd: Tensor, even: Subspaces, uneven: Subspaces) -> Across:
    labels = torch.empty(len(z), dtype=torch.int64)
    distance = torch.empty(len(z), 2)
    for half, others in ((odd, even), (~odd, uneven)):
        for rows in half.nonzero().flatten().split(ROWS):
            residual = others.residuals(z[rows])
            two = residual.topk(min(2, residual.shape[1]), dim=1, largest=False)
            labels[rows.cpu()] = two.indices[:, 0].cpu()
            distance[rows.cpu()] = two.values[:, [0, -1]].cpu()
    return Across(labels, distance[:, 0], distance[:, 1])


def _sums(z: Tensor, odd: Tensor, labels: Tensor, k: int) -> tuple[ScatterSums, ScatterSums]:
    """Of the even and of the odd rows."""
    even, uneven = (ScatterSums(k, z.shape[1], affine=False) for _ in range(2))
    even.add(z[~odd], labels[~odd])
    uneven.add(z[odd], labels[odd])
    return even, uneven


def _added(one: ScatterSums, other: ScatterSums) -> ScatterSums:
    both = ScatterSums(len(one.weight), one.dim, affine=False)
    both.weight, both.second = one.weight + other.weight, one.second + other.second
    return both


def _subspaces(sums: ScatterSums, dim: int, z: Tensor) -> Subspaces:
    dims = torch.full((len(sums.weight),), dim)
    return sums.subspaces(dims).to(z.dtype, z.device)
