"""Labels of all samples: the nearest subspace of each, and the order that clusters are numbered in.

Samples come in blocks, so only labels and distances are ever held for all of them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.subspaces import Subspaces
from kscn.training.alternate import Alternation, assign
from kscn.training.blocks import Blocks, FiniteCheck
from kscn.training.distributed import ALONE, Group

# Labels looked at together where all at once would cost memory.
PIECE = 1 << 20


def nearest(blocks: Blocks, subspaces: Subspaces) -> tuple[Tensor, Tensor]:
    """The nearest subspace of every sample (n,) and the squared distance to it (n,), on the CPU."""
    labels = torch.empty(len(blocks), dtype=torch.int32, device=blocks.device)
    distance = torch.empty(len(blocks), dtype=blocks.dtype, device=blocks.device)
    finite = FiniteCheck(blocks.source.name)
    for where, z in blocks:
        norms = z.square().sum(dim=1)
        finite(norms, z)
        smallest, label = subspaces.residuals(z, norms).min(dim=1)
        labels[where : where + len(z)] = label
        distance[where : where + len(z)] = smallest
    finite.close()
    return labels.cpu(), distance.cpu()


def canonical_order(labels: NDArray, n_clusters: int, weights: Tensor | None = None) -> NDArray:
    """Clusters by falling size (or weight), ties by their first sample, empty ones last."""
    counted = None if weights is None else weights.numpy()
    sizes = np.bincount(labels, weights=counted, minlength=n_clusters)
    first = np.full(n_clusters, len(labels))
    for begin in range((len(labels) - 1) // PIECE * PIECE, -1, -PIECE):  # the last written is first
        piece = labels[begin : begin + PIECE][::-1]
        first[piece] = np.arange(begin + len(piece) - 1, begin - 1, -1)
    return np.lexsort((first, -sizes))


def numbered(alternation: Alternation) -> tuple[Subspaces, NDArray, float]:
    """What an alternation has found, as `in_order` has it."""
    found = alternation.subspaces
    blocks = Blocks(alternation.latents, torch.float32, found.bases.device)
    return in_order(blocks, found, alternation.group, (alternation.labels, alternation.distance))


def in_order(
    blocks: Blocks,
    found: Subspaces,
    group: Group = ALONE,
    known: tuple[Tensor, Tensor] | None = None,
) -> tuple[Subspaces, NDArray, float]:
    """Subspaces in canonical order, and labels that are exactly what `predict` will say.

    Parameters
    ----------
    blocks : Blocks
        The samples of this process.
    found : Subspaces
        In any order.
    group : Group
        The processes that hold all samples together.
    known : (labels, distance), optional
        Of the samples of this process, where they have been computed already.

    Returns
    -------
    subspaces : Subspaces
    labels : ndarray of shape (n,)
        Of the samples of all processes.
    inertia : float
        Sum of all squared distances.
    """
    labels, distance = assign(blocks, found)[:2] if known is None else known
    k = found.n_clusters
    for _ in range(2):  # renumbering can tip a tie and with it a size; see KSubspaces
        order = canonical_order(group.gather(labels).cpu().numpy(), k)
        if (order == np.arange(k)).all():
            break
        found = found.reordered(torch.from_numpy(order).to(found.bases.device))
        labels, distance = assign(blocks, found)[:2]
    (inertia,) = group.add(float(distance.double().sum()))
    return found, group.gather(labels).cpu().numpy(), inertia
