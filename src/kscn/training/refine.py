"""Self-labelled refinement: a network learns the clusters it is given, and corrects them.

Views of a sample that differ by what should not matter (a small turn, a shift) are to fall into the
subspace of the sample itself. In the first epochs the clusters are those of the start, and only
samples that it is sure of teach. A network that has learnt from those generalises to the rest, and
from then on its own clusters of the unchanged samples are what it learns, the clearest first. The
subspaces are coordinates that do not move. Weights are averaged over time for everything but the
steps themselves: the average follows the labels more slowly than the network, so that mistakes of
one epoch are not learnt in the next.
"""

from __future__ import annotations

from torch import Tensor

from kscn.subspaces import Subspaces
from kscn.training.alternate import Alternation
from kscn.training.checkpoint import State
from kscn.training.pretrain import Trainer


class Refinement(Alternation):
    """An alternation that begins with given clusters instead of those of its own subspaces.

    Parameters
    ----------
    trainer : Trainer
        An encoder without reconstruction, its weights averaged over time.
    subspaces : Subspaces
        Where to begin, in the latent space; the network moves towards them.
    labels : Tensor, shape (n,)
        The clusters to begin with, of the samples of this process.
    doubt : Tensor, shape (n,)
        How unsure each of them is, from 0 on: the share `trim` of a cluster with the largest
        teaches nothing.
    hold : int
        Epochs for which they are kept.
    trim, temperature, balance : float
        As in `Alternation` with the separation loss.
    saved : State, optional
        Where an earlier refinement was, as in `Alternation`.
    """

    def __init__(
        self,
        trainer: Trainer,
        subspaces: Subspaces,
        labels: Tensor,
        doubt: Tensor,
        *,
        hold: int,
        trim: float,
        temperature: float,
        balance: float,
        saved: State | None = None,
    ) -> None:
        self.given, self.doubt, self.hold = labels.long(), doubt, hold
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
            saved=saved,
        )
        if trainer.epochs_done == trainer.steps_done == 0:
            self.labels = self.given

    def _targets(self) -> Tensor:
        if self.trainer.epochs_done >= self.hold:
            return super()._targets()
        k = self.subspaces.n_clusters
        keep = self.group.keep_nearest(self.doubt, self.given, self.trim, k)
        return self.given.where(keep, -1)
