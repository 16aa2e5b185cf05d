"""How good a clustering is, without labels: whether samples find back to their cluster.

Two questions are asked of the labels of any candidate, in several views of the same samples.
*Models*: do Gaussians, fitted to the members of each cluster outside a fold, send the samples of
the fold back to their own cluster? A Gaussian knows points (by its mean) and subspaces (by the
directions of its covariance). *Neighbours*: what share of a sample's nearest carries its label?
Both are averaged over clusters, so that small ones count as much as large ones, and multiplied. A
clustering that is only an artefact of one view has a low value in the others, and one that is real
need not show in all of them: the two views count in which most neighbours agree.

What the self-consistent ones of many candidates have in common is one more candidate (k-means-based
consensus clustering): mistakes that only one view makes are outvoted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

from kscn.neighbours.heldout import HELD_OUT, likelihoods, random_rank


@dataclass(frozen=True)
class Rules:
    """The numbers of self-consistency and consensus."""

    asked: int = 10  # neighbours at most; fewer where clusters are small
    views: int = 2  # that count, since what is real need not show in all
    sent: int = 2000  # samples at most that are sent back: a share of so many is known to about 1 %
    # Standard errors below the best value at which a candidate has about a third of its weight, and
    # within which two values say the same. Neighbours are not independent of each other, so these
    # are more than the two of independent samples.
    errors: int = 3
    faint: float = 1e-3  # weights below this share of the largest change nothing
    starts: int = 5  # of the k-means that finds the consensus


CONSISTENCY = Rules()


@dataclass(frozen=True)
class View:
    """One way to look at the sample: its rows z (n, d), and the nearest of each, `index` (n, K)."""

    z: Tensor
    index: Tensor


@dataclass(frozen=True)
class Consistency:
    """What a clustering scores: in all, and in the views that count, by their number."""

    value: float
    views: dict[int, float]


def self_consistency(views: Sequence[View], labels: Tensor, k: int, seed: int = 0) -> Consistency:
    """Self-consistency of the labels (n,) of k clusters, from 0 to 1."""
    rank = random_rank(len(labels), seed, labels.device)
    # Once for each of the two questions: an empty cluster has nobody who could find back.
    filled = float((torch.bincount(labels, minlength=k) > 0).float().mean()) ** 2
    near = [neighbour_consistency(view.index, labels, k) for view in views]
    best = sorted(range(len(views)), key=lambda number: -near[number])[: CONSISTENCY.views]
    found = {
        number: filled * near[number] * model_consistency(views[number].z, labels, k, rank)
        for number in best
    }
    return Consistency(sum(found.values()) / len(found), found)


def model_consistency(z: Tensor, labels: Tensor, k: int, rank: Tensor) -> float:
    """Share of members that Gaussians of the other folds send back, averaged over clusters."""
    rows = (rank < CONSISTENCY.sent).nonzero().flatten()
    back = likelihoods(z, labels, k, rank % HELD_OUT.folds, rows).argmax(dim=1) == labels[rows]
    return _mean_over_clusters(back.to(z.dtype), labels[rows], k)


def asked(n: int, k: int) -> int:
    """How many neighbours n samples of k clusters are asked for: fewer where clusters are small."""
    return max(3, min(CONSISTENCY.asked, n // (3 * k)))


def neighbour_consistency(index: Tensor, labels: Tensor, k: int) -> float:
    """Share of a sample's nearest that carry its label, averaged over clusters."""
    alike = labels[index[:, : asked(len(labels), k)]] == labels[:, None]
    return _mean_over_clusters(alike.float().mean(dim=1), labels, k)


def _mean_over_clusters(values: Tensor, labels: Tensor, k: int) -> float:
    """Mean over the clusters that have members here of the mean of these."""
    total = values.new_zeros(k).index_add_(0, labels, values)
    count = torch.bincount(labels, minlength=k)
    return float((total / count.clamp(min=1)).sum() / (count > 0).sum())


def margin(best: float, n: int) -> float:
    """How far below the best self-consistency of n samples a value says the same."""
    return CONSISTENCY.errors * math.sqrt(max(best * (1 - best), 0.0) / n)


def consensus(
    candidates: Sequence[NDArray], values: Sequence[float], k: int, seed: int = 0
) -> NDArray:
    """Labels (n,) of k clusters that candidates of these self-consistencies agree on best.

    A candidate weighs the less, the more surely it is worse than the best.
    """
    best = max(values)
    width = max(margin(best, len(candidates[0])), 1e-9)
    share = np.exp((np.asarray(values) - best) / width)
    kept = share > CONSISTENCY.faint
    counted = np.stack(candidates, axis=1)[:, kept]
    # Indicator vectors, sparse: of many clusters nearly all entries are zero. k-means takes 32-bit
    # numbers of columns only.
    n, count = counted.shape
    columns = (counted + k * np.arange(count)).astype(np.int32).ravel()
    begin = count * np.arange(n + 1, dtype=np.int32)
    weights = np.tile(np.sqrt(share[kept]).astype(np.float32), n)
    described = sparse.csr_array((weights, columns, begin), shape=(n, count * k))
    return KMeans(k, n_init=CONSISTENCY.starts, random_state=seed).fit_predict(described)
