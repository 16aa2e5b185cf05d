"""Self-labelled refinement: a network learns the clusters it is given, and corrects them.

Views of a sample that differ by what should not matter (a small turn, a shift) are to fall into the
subspace of the sample itself. In the first epochs the clusters are those of the start, and only
samples that it is sure of teach. A network that has learnt from those generalises to the rest. From
then on it learns what it and a second opinion, that of subspaces of features that do not change,
hold together for the clusters of the unchanged samples, the clearest first. The subspaces of the
network are coordinates that do not move. Weights are averaged over time for everything but the
steps themselves: the average follows the labels more slowly than the network, so that mistakes of
one epoch are not learnt in the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from kscn.subspaces import Subspaces
from kscn.training.alternate import Alternation
from kscn.training.checkpoint import State
from kscn.training.opinion import SecondOpinion
from kscn.training.pretrain import Trainer

# What is left out of the clusters that two views settle, as a share of what is left out of those
# that are given. The hard samples are there to be learnt, and now they are mostly right.
SETTLED = 0.2


class Refinement(Alternation):
    """An alternation that begins with given clusters and asks a second opinion on its own.

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
    opinion : callable () -> SecondOpinion
        Who is asked from then on; called when it comes to that, because features may take long.
    hold : int
        Epochs for which the given clusters are kept.
    every : int
        Epochs between two questions.
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
        opinion: Callable[[], SecondOpinion],
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
        self.find_opinion, self.every = opinion, every
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
    def opinion(self) -> SecondOpinion:
        """Who is asked."""
        return self.find_opinion()

    def state_dict(self) -> State:
        """As of any alternation; with what is learnt until the next question."""
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
            (labels, doubt), trim = self.opinion.settle(self._distances()), SETTLED * self.trim
        else:
            labels, doubt, trim = self.given, self.doubt, self.trim
        keep = self.group.keep_nearest(doubt, labels, trim, self.subspaces.n_clusters)
        return labels.where(keep, -1)

    def _distances(self) -> Tensor:
        """Squared distances (n, k) of the latents to every subspace."""
        return torch.cat([self.subspaces.residuals(z) for _, z in self._blocks()])
