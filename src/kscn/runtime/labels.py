"""Labels of all samples: the nearest subspace of each, and the order that clusters are numbered in.

Samples come in blocks, so only labels and distances are ever held for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.runtime.blocks import Blocks, FiniteCheck
from kscn.runtime.group import ALONE, Group, place
from kscn.subspaces import Subspaces

# Labels looked at together where all at once would cost memory.
PIECE = 1 << 20


class Assignment(NamedTuple):
    """Where all samples belong."""

    labels: Tensor  # nearest subspace, shape (n,), int32
    distance: Tensor  # squared distance to it, shape (n,)
    # Of the samples of all processes:
    objective: float  # sum of the squared distances
    relative: float  # the same as a share of the sum of |z|^2
    zeros: float  # share of samples that are zero
    sizes: Tensor  # members of each cluster, shape (k,), on the CPU


def assign(blocks: Blocks, subspaces: Subspaces, group: Group = ALONE) -> Assignment:
    """The nearest subspace of every sample of this process, on the device of the blocks."""
    labels = torch.empty(len(blocks), dtype=torch.int32, device=blocks.device)
    distance = torch.empty(len(blocks), dtype=blocks.dtype, device=blocks.device)
    totals = torch.zeros(2, dtype=torch.float64, device=blocks.device)  # of |z|^2, and zeros
    finite, (first, _) = FiniteCheck(blocks.source.name), place(blocks.source)
    for where, z in blocks:
        norms = z.square().sum(dim=1)
        finite(norms, z, first + where)
        nearest, label = subspaces.residuals(z, norms).min(dim=1)
        labels[where : where + len(z)] = label
        distance[where : where + len(z)] = nearest
        totals += torch.stack([norms.double().sum(), (norms == 0).sum()])
    finite.close()
    members = labels.new_zeros(subspaces.n_clusters).long()
    members.index_add_(0, labels, torch.ones_like(labels, dtype=torch.long))
    sums = torch.cat([distance.double().sum()[None], totals, members.double()])
    # All that the device has to be waited for, and all that processes tell each other, at once.
    objective, energy, zero, *sizes = group.sum(sums).tolist()
    counts = torch.tensor(sizes, dtype=torch.long)
    relative, zeros = objective / max(energy, 1e-300), zero / int(counts.sum())
    return Assignment(labels, distance, objective, relative, zeros, counts)


def canonical_order(
    labels: NDArray, n_clusters: int, weights: Tensor | None = None, piece: int = PIECE
) -> NDArray:
    """Clusters by falling size (or weight), ties by their first sample, empty ones last."""
    counted = None if weights is None else weights.numpy()
    sizes = np.bincount(labels, weights=counted, minlength=n_clusters)
    first = np.full(n_clusters, len(labels))
    for begin in range((len(labels) - 1) // piece * piece, -1, -piece):  # the last written is first
        some = labels[begin : begin + piece][::-1]
        first[some] = np.arange(begin + len(some) - 1, begin - 1, -1)
    return np.lexsort((first, -sizes))


class Numbered(NamedTuple):
    """Clusters in canonical order."""

    subspaces: Subspaces
    labels: NDArray  # of the samples of all processes, shape (n,)
    inertia: float  # sum of squared distances, of all processes
    distance: Tensor  # of the samples of this process to their subspace, squared
    order: Tensor  # which of the given clusters each of them is, shape (k,)


def in_order(
    blocks: Blocks,
    found: Subspaces,
    group: Group = ALONE,
    known: tuple[Tensor, Tensor] | None = None,
    weights: Tensor | None = None,
) -> Numbered:
    """Subspaces in canonical order, and labels that are exactly what `predict` will say.

    `known` are labels and distances of the samples of this process, where they have been computed
    already. With `weights` (n,), those of all samples, clusters are ordered by weight, not by size.
    """
    labels, distance = assign(blocks, found)[:2] if known is None else known
    everyone = group.gather(labels).cpu().numpy()
    k = found.n_clusters
    whole = torch.arange(k)
    for _ in range(2):
        order = torch.from_numpy(canonical_order(everyone, k, weights))
        if torch.equal(order, torch.arange(k)):
            break
        # Assigned again, not renamed: a tie goes to the first subspace, as it will in predict.
        # That can shift sizes by a sample or two, hence a second round, but no endless loop.
        found, whole = found[order.to(found.bases.device)], whole[order]
        labels, distance = assign(blocks, found)[:2]
        everyone = group.gather(labels).cpu().numpy()
    (inertia,) = group.add(float(distance.double().sum()))
    return Numbered(found, everyone.astype(np.int32, copy=False), inertia, distance, whole)
