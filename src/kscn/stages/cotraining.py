"""Self-labelled refinement: a network learns the clusters it is given, and corrects them.

Views of a sample that differ by what should not matter (a small turn, a shift) are to fall into the
subspace of the sample itself. In the first epochs the clusters are those of the start, and only
samples that it is sure of teach. A network that has learnt from those generalises to the rest.

From then on it learns by co-training. A network that learns from its own clusters confirms its
mistakes. Subspaces of features that do not change make mistakes too, but on other samples: fitted
to the clusters of the network, they are about as often right, and where the two differ, the one
that is sure mostly is. So the network learns what both hold together for the clusters of the
unchanged samples, the clearest first.

The subspaces of the network are coordinates that do not move. Weights are averaged over time for
everything but the steps themselves: the average follows the labels more slowly than the network, so
that mistakes of one epoch are not learnt in the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from kscn.data import Source
from kscn.runtime.blocks import Blocks
from kscn.runtime.checkpoint import State
from kscn.runtime.folds import drawn
from kscn.runtime.group import ALONE, Group, place
from kscn.stages.alternate import Alternation
from kscn.stages.grow import fold_of, grow, residuals_across
from kscn.stages.pretrain import Trainer
from kscn.subspaces import Subspaces

# Samples of all processes that a temperature is found on, halvings of the range that it is sought
# in, and this range around the usual gap between first and second.
SAMPLE, HALVINGS, RANGE = 20_000, 24, 1e3
# What is left out of the clusters that two views hold together, as a share of what is left out of
# those that are given. The hard samples are there to be learnt, and now they are mostly right.
OF_COMBINED = 0.2


class Refinement(Alternation):
    """An alternation that begins with given clusters and goes on by co-training.

    Parameters
    ----------
    trainer : Trainer
        An encoder without reconstruction, its weights averaged over time.
    subspaces : Subspaces
        Where to begin, in the latent space; the network moves towards them.
    labels : Tensor, shape (n,)
        The clusters to begin with, of the samples of this process.
    doubt : Tensor, shape (n,)
        How unsure each of them is, from 0 on.
    view : callable () -> FeatureView
        The other view; called when it is wanted first, because features may take long.
    hold : int
        Epochs for which the given clusters are kept.
    every : int
        Epochs between two looks at the other view.
    trim : float
        Share of each given cluster that teaches nothing; of later ones, a fifth of it.
    temperature, balance : float
        As in `Alternation` with the separation loss.
    shares : Tensor, shape (k,)
        The share of all samples that each cluster had at the start, and should keep.
    """

    def __init__(
        self,
        trainer: Trainer,
        subspaces: Subspaces,
        labels: Tensor,
        doubt: Tensor,
        view: Callable[[], FeatureView],
        *,
        hold: int,
        every: int,
        trim: float,
        temperature: float,
        balance: float,
        shares: Tensor,
    ) -> None:
        device = trainer.batches.device
        self.given, self.doubt, self.hold = labels.long().to(device), doubt.to(device), hold
        self.make_view, self.every = view, every
        super().__init__(
            trainer,
            subspaces,
            # Fitted anew, a subspace of more dimensions than its members use takes up directions of
            # the clusters that they are mistaken for, and the mistakes are learnt.
            update="none",
            loss="separation",
            weight=1.0,
            trim=trim,
            temperature=temperature,
            balance=balance,
        )
        self.shares = shares.to(device)

    def begin(self) -> None:
        """As of any alternation; but the first clusters are the given ones."""
        super().begin()
        if self.trainer.epochs_done == 0:
            self.labels = self.given

    @cached_property
    def view(self) -> FeatureView:
        """The other view."""
        return self.make_view()

    def state_dict(self) -> State:
        """As of any alternation; with what is learnt until the next look at the other view."""
        state = super().state_dict()
        if self.trainer.epochs_done and "targets" not in state.tensors:
            state.tensors["targets"] = self.group.gather(self.targets)
        return state

    def load_state_dict(self, state: State) -> None:
        """Go on from `state`."""
        super().load_state_dict(state)
        if "targets" in state.tensors:
            self.targets = self._own(state.tensors["targets"])

    def _targets(self) -> Tensor:
        since = self.trainer.epochs_done - self.hold
        if since > 0 and since % self.every:
            return self.targets
        if since >= 0:
            (labels, doubt), trim = self.view.combined(self._distances()), OF_COMBINED * self.trim
        else:
            labels, doubt, trim = self.given, self.doubt, self.trim
        keep = self.group.keep_nearest(doubt, labels, trim, self.subspaces.n_clusters)
        return labels.where(keep, -1)

    def _distances(self) -> Tensor:
        """Squared distances (n, k) of the latents to every subspace."""
        return torch.cat([self.subspaces.residuals(z) for _, z in self._blocks()])


class Combined(NamedTuple):
    """What two views of the same samples say together, shape (n,) each."""

    labels: Tensor
    doubt: Tensor  # 1 where two clusters are as likely as each other, towards 0 where one is sure


class FeatureView:
    """The other view of co-training: subspaces of fixed features, fitted to given clusters.

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

    def combined(self, distance: Tensor) -> Combined:
        """The clusters that a network and the features agree on best.

        Parameters
        ----------
        distance : Tensor, shape (n, k)
            Of our samples to the subspaces of the network.
        """
        other = self.residuals(distance.argmin(dim=1), distance.shape[1])
        first, _ = place(self.blocks.source)
        return combined(-distance, -relative(other), first, self.seed, self.group)


def relative(residual: Tensor) -> Tensor:
    """Squared distances (n, k) as multiples of the nearest.

    Not their difference: a rare shape is far from all subspaces, but may be clear.
    """
    return residual / residual.min(dim=1, keepdim=True).values.clamp(min=1e-12)


def combined(
    one: Tensor, other: Tensor, first: int = 0, seed: int = 0, group: Group = ALONE
) -> Combined:
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
    return Combined(two.indices[:, 0], 1 / (1 + margin))


def _log_probability(scores: Tensor, labels: Tensor, some: Tensor, group: Group) -> Tensor:
    return torch.log_softmax(
        scores / calibrated_temperature(scores[some], labels[some], group), dim=1
    )


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
