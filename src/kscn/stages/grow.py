"""Subspaces that grow when the clusters are known, every sample judged by others than itself.

A search wants small subspaces: large ones overlap, and then any start is a minimum. But once the
clusters are nearly right, larger subspaces tell them apart better: the directions that come in late
are those of the rare members, and these are the ones that small subspaces mistake.

A sample that has helped to shape a large subspace lies near it, right or wrong, and would stay
where it is. So the samples are shared out to a few folds, and those of a fold are assigned by
subspaces of all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kscn.runtime.blocks import Blocks
from kscn.runtime.folds import folds
from kscn.subspaces import ScatterSums, Subspaces, leading_directions

# Two of them would fit every subspace to half of the samples only.
FOLDS = 5
# Dimensions double until they reach a third of the space, or until clusters have this many members
# per dimension.
SHARE, MEMBERS_PER_DIM = 3, 10
# Assignments at every dimension.
PASSES = 3
# Samples whose projections are held at a time.
ROWS = 8192


class Grown(NamedTuple):
    """Subspaces of all samples, and for every fold those of the samples outside it, if asked."""

    whole: Subspaces
    without: list[Subspaces]


class Across(NamedTuple):
    """Where samples belong by the folds that they are not in, shape (n,) each."""

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
    fold: Tensor,
    labels: Tensor,
    k: int,
    dims: list[int],
    report: Callable[[int, int], object] = lambda *_: None,
    across: bool = True,
) -> Grown:
    """Let the subspaces of k clusters have the dimensions `dims`, one after the other.

    Parameters
    ----------
    z : Tensor, shape (m, d)
        Samples.
    fold : Tensor, shape (m,)
        Which fold each is in.
    labels : Tensor, shape (m,)
        Their clusters.
    k : int
        How many clusters there are.
    dims : list of int
        Of `dimensions`, at least one.
    report : callable
        Called with the number of dimensions done, and of how many.
    across : bool
        Whether the subspaces outside of every fold are wanted.
    """
    parts = _parts(fold)
    for number, dim in enumerate(dims, start=1):
        for _ in range(PASSES):
            labels = _across(z, parts, _without(z, parts, labels, k, dim, _roughly)).argmin(dim=1)
        report(number, len(dims))
    without = _without(z, parts, labels, k, dims[-1], _exactly) if across else []
    return Grown(_exactly(_sums(z, labels, k), dims[-1], z), without)


def fold_of(rows: Tensor, seed: int) -> Tensor:
    """Which fold samples are in, from their numbers among all."""
    return folds(rows, seed, FOLDS)


def assign_across(blocks: Blocks, first: int, without: Sequence[Subspaces], seed: int) -> Across:
    """Assign samples by the folds that they are not in.

    Parameters
    ----------
    blocks : Blocks
        Samples.
    first : int
        The number of the first of them.
    without : sequence of Subspaces
        For every fold, those of the samples outside it.
    seed : int
        Of the folds.
    """
    parts = [_nearest(residual) for residual in _residuals(blocks, first, without, seed)]
    return Across(*(torch.cat(pieces) for pieces in zip(*parts, strict=True)))


def residuals_across(blocks: Blocks, first: int, without: Sequence[Subspaces], seed: int) -> Tensor:
    """Squared distances (n, k) to the subspaces of the folds that samples are not in.

    Parameters are those of `assign_across`.
    """
    return torch.cat(list(_residuals(blocks, first, without, seed)))


def _residuals(
    blocks: Blocks, first: int, without: Sequence[Subspaces], seed: int
) -> Iterator[Tensor]:
    for start, z in blocks:
        rows = torch.arange(first + start, first + start + len(z), device=z.device)
        yield _across(z, _parts(fold_of(rows, seed)), without)


def _parts(fold: Tensor) -> list[Tensor]:
    """The rows of every fold, on the CPU: a device would wait for each of them, and every time."""
    fold = fold.cpu()
    return [(fold == number).nonzero().flatten() for number in range(FOLDS)]


def _across(z: Tensor, parts: list[Tensor], without: Sequence[Subspaces]) -> Tensor:
    found = torch.empty(len(z), without[0].n_clusters, device=z.device)
    for inside, others in zip(parts, without, strict=True):
        for rows in inside.to(z.device).split(ROWS):
            found[rows] = others.residuals(z[rows]).float()
    return found


def _nearest(residual: Tensor) -> Across:
    two = residual.topk(min(2, residual.shape[1]), dim=1, largest=False)
    return Across(two.indices[:, 0], two.values[:, 0], two.values[:, -1])


def _without(
    z: Tensor,
    parts: list[Tensor],
    labels: Tensor,
    k: int,
    dim: int,
    subspaces: Callable[[ScatterSums, int, Tensor], Subspaces],
) -> list[Subspaces]:
    """For every fold, the subspaces of the samples outside it."""
    labels = labels.cpu()
    whole = _sums(z, labels, k)
    found = []
    for inside in parts:
        rest = _sums(z[inside.to(z.device)], labels[inside], k)
        rest.weight, rest.second = whole.weight - rest.weight, whole.second - rest.second
        found.append(subspaces(rest, dim, z))
    return found


def _sums(z: Tensor, labels: Tensor, k: int) -> ScatterSums:
    sums = ScatterSums(k, z.shape[1], affine=False, device=z.device)
    sums.add(z, labels)
    return sums


def _roughly(sums: ScatterSums, dim: int, z: Tensor) -> Subspaces:
    return Subspaces(leading_directions(sums.second.to(z), dim))


def _exactly(sums: ScatterSums, dim: int, z: Tensor) -> Subspaces:
    dims = torch.full((len(sums.weight),), dim)
    return sums.subspaces(dims).to(z.dtype, z.device)
