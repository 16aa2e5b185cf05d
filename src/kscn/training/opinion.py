"""A second opinion on the clusters of a network, from subspaces of features that do not change.

A network that learns from its own clusters confirms its mistakes. Subspaces of fixed features make
mistakes too, but on other samples: fitted to the clusters of the network, they are about as often
right, and where the two differ, the one that is sure mostly is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kscn.data import Source
from kscn.training.blocks import Blocks
from kscn.training.distributed import ALONE, Group, place
from kscn.training.folds import drawn
from kscn.training.growth import fold_of, grow, residuals_across

# Samples of all processes that a temperature is found on, halvings of the range that it is sought
# in, and this range around the usual gap between first and second.
SAMPLE, HALVINGS, RANGE = 20_000, 24, 1e3


class Settled(NamedTuple):
    """What two views of the same samples say together, shape (n,) each."""

    labels: Tensor
    doubt: Tensor  # 1 where two clusters are as likely as each other, towards 0 where one is sure


class SecondOpinion:
    """Subspaces of fixed features, fitted to clusters that somebody else proposes.

    Every sample is judged by subspaces that it had no part in.

    Parameters
    ----------
    features : Source
        Of the samples of this process, in order.
    z : Tensor, shape (m, d)
        Features of those samples, of all processes, that subspaces are fitted to.
    rows : Tensor, shape (m,)
        Their numbers among all samples.
    dim : int
        Dimension of the subspaces.
    seed : int
        Of the folds, and of what temperatures are found on.
    group : Group
        The processes that hold all samples together.
    """

    def __init__(
        self, features: Source, z: Tensor, rows: Tensor, dim: int, seed: int, group: Group = ALONE
    ) -> None:
        self.blocks = Blocks(features, z.dtype, z.device)
        self.z, self.rows, self.dim, self.seed, self.group = z, rows, dim, seed, group

    def residuals(self, labels: Tensor, n_clusters: int) -> Tensor:
        """Squared distances (n, k) of our samples, for the clusters (n,) that they are now in."""
        known = self.group.gather(labels)[self.rows]
        fitted = grow(self.z, fold_of(self.rows, self.seed), known, n_clusters, [self.dim])
        without = [self.group.agree_on(part) for part in fitted.without]
        return residuals_across(self.blocks, place(self.blocks.source)[0], without, self.seed)

    def settle(self, distance: Tensor) -> Settled:
        """The clusters that a network and the features agree on best.

        Parameters
        ----------
        distance : Tensor, shape (n, k)
            Of our samples to the subspaces of the network.
        """
        other = self.residuals(distance.argmin(dim=1), distance.shape[1])
        first, _ = place(self.blocks.source)
        return both(-distance, -relative(other), first, self.seed, self.group)


def relative(residual: Tensor) -> Tensor:
    """Squared distances (n, k) as multiples of the nearest.

    Not their difference: a rare shape is far from all subspaces, but may be clear.
    """
    return residual / residual.min(dim=1, keepdim=True).values.clamp(min=1e-12)


def both(
    one: Tensor, other: Tensor, first: int = 0, seed: int = 0, group: Group = ALONE
) -> Settled:
    """What two scores (n, k) say together, each taken as seriously as the other bears it out.

    Scores become probabilities by the temperature at which they tell best what the other view
    holds for true: a view that is often contradicted where it is sure gets a high one. Two views
    cannot tell which of them is the better one, so they should be of about the same worth. `first`
    is the number of the first sample among those of all processes.
    """
    rows = torch.arange(first, first + len(one), device=one.device)
    (count,) = group.add(len(one))
    some = drawn(rows, seed, SAMPLE, int(count)).nonzero().flatten()
    total = _log_probability(one, other.argmax(dim=1), some, group)
    total += _log_probability(other, one.argmax(dim=1), some, group)
    two = total.topk(min(2, total.shape[1]), dim=1)
    margin = two.values[:, 0] - two.values[:, -1]
    return Settled(two.indices[:, 0], 1 / (1 + margin))


def _log_probability(scores: Tensor, labels: Tensor, some: Tensor, group: Group) -> Tensor:
    return torch.log_softmax(scores / temperature(scores[some], labels[some], group), dim=1)


def temperature(scores: Tensor, labels: Tensor, group: Group = ALONE) -> float:
    """The temperature at which softmax(scores / temperature) makes `labels` likeliest.

    The likelihood is concave in its inverse: where the score that is expected equals the score of
    the labels, on average, is the maximum. Found by halving, from samples of all processes.
    """
    scores = scores.double()
    two = scores.topk(min(2, scores.shape[1]), dim=1).values
    (count,) = group.add(len(scores))
    held = group.sum(scores.gather(1, labels[:, None]).sum())
    usual = (group.sum((two[:, 0] - two[:, -1]).sum()) / count).clamp(min=1e-12)
    low, high = 1 / (RANGE * usual), RANGE / usual
    for _ in range(HALVINGS):
        middle = (low * high).sqrt()
        above = group.sum((torch.softmax(scores * middle, dim=1) * scores).sum()) > held
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return float(1 / (low * high).sqrt())
