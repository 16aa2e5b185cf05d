"""The other view of co-training: subspaces of features that do not change.

Fitted to the clusters of a network, they make mistakes too, but on other samples: they are about as
often right, and where the two differ, the one that is sure mostly is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kscn.choice.grow import GROWTH, dimensions, fold_of, grow, growth_sample, residuals_across
from kscn.data import Source
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import ALONE, Group, place
from kscn.runtime.rows import sample_rows
from kscn.training.driver import Run

# Samples of all processes that a temperature is found on, halvings of the range that it is
# sought in, and this range around the usual gap between first and second.
CALIBRATED = 20_000
HALVINGS = 24
RANGE = 1e3


class Combined(NamedTuple):
    """What two views of the same samples say together, shape (n,) each."""

    labels: Tensor
    doubt: Tensor  # 1 where two clusters are as likely as each other, towards 0 where one is sure


@dataclass
class FeatureView:
    """The other view of co-training: subspaces of fixed features, fitted to given clusters.

    Every sample is judged by subspaces that it had no part in.
    """

    features: Source  # of the samples of this process, in order
    z: Tensor  # (m, d), of those samples, of all processes, that subspaces are fitted to
    rows: Tensor  # (m,), their numbers among all samples
    dim: int  # of the subspaces
    seed: int  # of the folds, and of what temperatures are found on
    group: Group = ALONE

    def residuals(self, labels: Tensor, n_clusters: int) -> Tensor:
        """Squared distances (n, k) of our samples, for the clusters (n,) that they are now in."""
        known = self.group.gather(labels)[self.rows]
        fitted = grow(self.z, fold_of(self.rows, self.seed), known, n_clusters, [self.dim])
        without = [self.group.agree_on(part) for part in fitted.without]
        blocks = Blocks(self.features, self.z.dtype, self.z.device)
        return torch.cat(list(residuals_across(blocks, without, self.seed)))

    def combined(self, distance: Tensor) -> Combined:
        """The clusters on which the distances (n, k) of a network and the features agree best."""
        other = self.residuals(distance.argmin(dim=1), distance.shape[1])
        # Multiples of the nearest, no differences: a rare shape is far from all subspaces, but may
        # be clear.
        relative = other / other.min(dim=1, keepdim=True).values.clamp(min=1e-12)
        return combined(-distance, -relative, place(self.features)[0], self.seed, self.group)


def feature_view(features: Source, k: int, run: Run) -> FeatureView:
    """Subspaces of fixed features, for whatever k clusters the refinement will have."""
    rows, z = growth_sample(features, run.seed, run.device, run.group)
    first = max(1, min(GROWTH.first_dim, z.shape[1] // 2))
    dim = [first, *dimensions(first, len(rows) // k, z.shape[1])][-1]
    return FeatureView(features, z, torch.from_numpy(rows).to(run.device), dim, run.seed, run.group)


def combined(
    one: Tensor, other: Tensor, first: int = 0, seed: int = 0, group: Group = ALONE
) -> Combined:
    """What two scores (n, k) say together, each taken as seriously as the other bears it out.

    Scores become probabilities by the temperature at which they tell best what the other view
    holds for true: a view that is often contradicted where it is sure gets a high one. Two views
    cannot tell which of them is the better one, so they should be of about the same worth. `first`
    is the number of the first sample among those of all processes.
    """
    (count,) = group.add(len(one))
    rows = torch.from_numpy(sample_rows(int(count), CALIBRATED, seed)).to(one.device) - first
    some = rows[(rows >= 0) & (rows < len(one))]
    total = torch.zeros_like(one)
    for scores, labels in ((one, other.argmax(dim=1)), (other, one.argmax(dim=1))):
        temperature = calibrated_temperature(scores[some], labels[some], group)
        total += torch.log_softmax(scores / temperature, dim=1)
    two = total.topk(min(2, total.shape[1]), dim=1)
    margin = two.values[:, 0] - two.values[:, -1]
    return Combined(two.indices[:, 0], 1 / (1 + margin))


def calibrated_temperature(scores: Tensor, labels: Tensor, group: Group = ALONE) -> float:
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
