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
from dataclasses import dataclass
from typing import NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.choice.folds import folds
from kscn.data import Source
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import Group, place
from kscn.runtime.rows import sample, sample_rows
from kscn.subspaces import ScatterSums, Subspaces, leading_directions


@dataclass(frozen=True)
class Growth:
    """The numbers of the growth."""

    folds: int = 5  # two would fit every subspace to half of the samples only
    first_dim: int = 8  # where it begins: subspaces as small as this overlap little
    # Dimensions double until they reach this part of the space, or until clusters have so few
    # members per dimension: beyond, subspaces overlap or describe chance.
    part: int = 3
    members_per_dim: int = 10
    passes: int = 3  # assignments at every dimension
    rows: int = 8192  # samples whose projections are held at a time
    sample: int = 70_000  # samples on which subspaces grow; they are held in memory


GROWTH = Growth()


class Grown(NamedTuple):
    """Subspaces of all samples, and for every fold those of the samples outside it, if asked."""

    whole: Subspaces
    without: list[Subspaces]


def dimensions(first: int, members: int, ambient: int) -> list[int]:
    """The dimensions to go through after `first`, for clusters of about so many members."""
    last = min(ambient // GROWTH.part, members // GROWTH.members_per_dim)
    found = []
    while first < last:
        first = min(2 * first, last)
        found.append(first)
    return found


def fold_of(rows: Tensor, seed: int) -> Tensor:
    """Which fold samples are in, from their numbers among all."""
    return folds(rows, seed, GROWTH.folds)


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

    Samples z (m, d) are in the folds `fold` (m,) and in the clusters `labels` (m,). `report` is
    called with how many of the dimensions are done, and of how many. `across` says whether the
    subspaces outside of every fold are wanted.
    """
    parts = _parts(fold)
    for number, dim in enumerate(dims, start=1):
        for _ in range(GROWTH.passes):
            without = _without(z, parts, labels, k, dim, _leading)
            labels = _residuals(z, parts, without).argmin(dim=1)
        report(number, len(dims))
    without = _without(z, parts, labels, k, dims[-1], _exact) if across else []
    return Grown(_exact(_sums(z, labels, k), dims[-1], z), without)


def residuals_across(blocks: Blocks, without: Sequence[Subspaces], seed: int) -> Iterator[Tensor]:
    """Squared distances (b, k) to the subspaces of the folds that samples are not in, by blocks."""
    first, _ = place(blocks.source)
    for start, z in blocks:
        rows = torch.arange(first + start, first + start + len(z), device=z.device)
        yield _residuals(z, _parts(fold_of(rows, seed)), without)


def _parts(fold: Tensor) -> list[Tensor]:
    """The rows of every fold, on the CPU: a device would wait for each of them, and every time."""
    fold = fold.cpu()
    return [(fold == number).nonzero().flatten() for number in range(GROWTH.folds)]


def _residuals(z: Tensor, parts: list[Tensor], without: Sequence[Subspaces]) -> Tensor:
    """Squared distances (m, k) of every sample to the subspaces outside its fold."""
    found = torch.empty(len(z), without[0].n_clusters, device=z.device)
    for inside, others in zip(parts, without, strict=True):
        for rows in inside.to(z.device).split(GROWTH.rows):
            found[rows] = others.residuals(z[rows]).float()
    return found


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


def _leading(sums: ScatterSums, dim: int, z: Tensor) -> Subspaces:
    """By iterations that are exact enough to assign by."""
    return Subspaces(leading_directions(sums.second.to(z), dim))


def _exact(sums: ScatterSums, dim: int, z: Tensor) -> Subspaces:
    dims = torch.full((len(sums.weight),), dim)
    return sums.subspaces(dims).to(z.dtype, z.device)


def growth_sample(
    source: Source, seed: int, device: torch.device, group: Group
) -> tuple[NDArray, Tensor]:
    """The samples that subspaces grow on: their numbers (m,), and them (m, d)."""
    rows = sample_rows(place(source)[1], GROWTH.sample, seed)
    return rows, sample(source, rows, device, group)
