"""Which of several searches is believed: the lowest, or among equals the one the others repeat."""

from __future__ import annotations

import torch
from torch import Tensor

from kscn.subspaces.bases import Subspaces

TIE = 0.005
AGREED = 3  # chains that end in the same clustering end the search

Ended = tuple[float, Subspaces, Tensor]  # objective, subspaces and labels of a chain


def settled(ended: list[Ended]) -> bool:
    """Whether the best chains have found the same clustering AGREED times over."""
    ended = sorted(ended, key=lambda entry: entry[0])[:AGREED]
    if len(ended) < AGREED or ended[-1][0] > ended[0][0] * (1 + TIE / 10) + 1e-30:
        return False
    return all(mutual_information(ended[0][2], other[2]) > 0.999 for other in ended[1:])


def consensus(ended: list[Ended]) -> Subspaces:
    """Of the chains tied for the lowest objective, the one that agrees best with the others."""
    ended = sorted(ended, key=lambda entry: entry[0])
    tied = [entry for entry in ended if entry[0] <= ended[0][0] * (1 + TIE)]
    if len(tied) < 3:
        return tied[0][1]
    agreement = [sum(mutual_information(a[2], b[2]) for b in tied) for a in tied]
    return tied[max(range(len(tied)), key=lambda i: round(agreement[i], 9))][1]


def mutual_information(a: Tensor, b: Tensor) -> float:
    """Normalised mutual information of two labelings; 1 when they are the same clustering."""
    width = int(b.max()) + 1
    joint = torch.bincount(a * width + b, minlength=(int(a.max()) + 1) * width).double()
    joint = joint.view(-1, width) / len(a)

    def entropy(share: Tensor) -> float:
        return float(-torch.special.xlogy(share, share).sum())

    of_a, of_b = entropy(joint.sum(dim=1)), entropy(joint.sum(dim=0))
    both = of_a + of_b
    return 1.0 if both == 0 else 2 * (both - entropy(joint)) / both
