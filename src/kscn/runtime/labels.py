"""Labels of all samples: the nearest subspace of each, and the order that clusters are numbered in.

Samples come in blocks, so only labels and distances are ever held for all of them.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.runtime.blocks import Blocks
from kscn.runtime.group import ALONE, Group
from kscn.subspaces import Subspaces


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
    for start, z in blocks:
        norms = z.square().sum(dim=1)
        nearest, label = subspaces.residuals(z, norms).min(dim=1)
        labels[start : start + len(z)] = label
        distance[start : start + len(z)] = nearest
        totals += torch.stack([norms.double().sum(), (norms == 0).sum()])
    members = torch.bincount(labels, minlength=subspaces.n_clusters)
    sums = torch.cat([distance.double().sum()[None], totals, members.double()])
    # All that the device has to be waited for, and all that processes tell each other, at once.
    objective, energy, zero, *sizes = group.sum(sums).tolist()
    blocks.check(energy)
    counts = torch.tensor(sizes, dtype=torch.long)
    relative, zeros = objective / max(energy, 1e-300), zero / int(counts.sum())
    return Assignment(labels, distance, objective, relative, zeros, counts)


def canonical_order(labels: NDArray, n_clusters: int, weights: Tensor | None = None) -> NDArray:
    """Clusters by falling size (or weight), ties by their first sample, empty ones last."""
    sizes = np.bincount(labels, weights=weights, minlength=n_clusters)
    first = [(labels == i).argmax() for i in range(n_clusters)]
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
    labels: Tensor | None = None,
    weights: Tensor | None = None,
) -> Numbered:
    """Subspaces in canonical order, and labels that are exactly what `predict` will say.

    With `labels` of the samples of this process, which may be those of an iteration before, samples
    are mostly read once. With `weights` (n,), those of all samples, clusters are ordered by weight,
    not by size.
    """
    k = found.n_clusters
    order, nearest = torch.arange(k), None
    if labels is None:
        labels = (nearest := assign(blocks, found, group)).labels
    everyone = group.gather(labels).cpu().numpy()
    for _ in range(2):
        better = torch.from_numpy(canonical_order(everyone, k, weights))
        if nearest is not None and torch.equal(better, torch.arange(k)):
            break
        # Assigned again, not renamed: a tie goes to the first subspace, as it will in predict.
        # That can shift sizes by a sample or two, hence a second round, but no endless loop.
        found, order = found[better.to(found.bases.device)], order[better]
        nearest = assign(blocks, found, group)
        everyone = group.gather(nearest.labels).cpu().numpy()
    assert nearest is not None
    final = everyone.astype(np.int32, copy=False)
    return Numbered(found, final, nearest.objective, nearest.distance, order)
