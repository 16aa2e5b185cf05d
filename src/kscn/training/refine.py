"""The refinement: an encoder learns clusters of images, and corrects them.

Views of an image that differ by what should not matter (a small turn, a shift) are to fall into the
subspace of the image itself. In the first epochs the clusters are those of the start, and only
samples that it is sure of teach. A network that has learnt from those generalises to the rest.

From then on it learns by co-training. A network that learns from its own clusters confirms its
mistakes. So it learns what it and another view hold together for the clusters of the unchanged
samples, the clearest first; that view makes mistakes on other samples.

The subspaces of the network are coordinates that do not move. Weights are averaged over time for
everything but the steps themselves: the average follows the labels more slowly than the network, so
that mistakes of one epoch are not learnt in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kscn.nn import ConvEncoder, DeepNetwork, UnitLatent
from kscn.runtime.blocks import Blocks
from kscn.runtime.device import placed, seeded
from kscn.runtime.group import Group, place, send_module
from kscn.runtime.labels import Assignment, assign
from kscn.runtime.minibatches import Minibatches, encode
from kscn.subspaces import Subspaces
from kscn.training.driver import Run
from kscn.training.losses import LossOptions, separation_loss
from kscn.training.trainer import Augmentation, Trainer

STAGE = "fit"

# Where `epochs` is "auto": about so many steps, within these numbers of epochs.
STEPS = 8200
FEWEST_EPOCHS = 12
MOST_EPOCHS = 60
# Share of each cluster of the start, its least clear samples, that does not teach; and the
# share of that once encoder and features settle the clusters together: the hard samples are
# there to be learnt, and then they are mostly right.
TRIM = 0.1
OF_COMBINED = 0.2
TEMPERATURE = 0.1  # of the energies as logits
BALANCE = 0.5  # how much clusters are held to the sizes that they had at the start
HOLD = 0.3  # share of the epochs in which the network learns the clusters of the start
LOOK_EVERY = 2  # epochs between two looks at the subspaces of the features, after that
AVERAGE = 0.99  # of the average of the weights, per step
# Latent dimensions shared out between the subspaces of the encoder, and at most per one.
LATENT_DIM = 80
MOST_DIM = 8


@dataclass
class Taught:
    """The clusters (n,) that the network learns, -1 for none, as part of the states of a fit."""

    labels: Tensor  # of the samples of this process
    first: int  # the number of the first of them among all
    group: Group

    def state_dict(self) -> dict[str, Tensor]:
        """Those of all processes."""
        return {"labels": self.group.gather(self.labels)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on with others."""
        own = slice(self.first, self.first + len(self.labels))
        self.labels = state["labels"][own].to(self.labels)


def refinement_epochs(n: int, batch_size: int) -> int:
    """About as many steps for any number of samples, within limits."""
    enough = -(-STEPS * batch_size // n)
    return max(FEWEST_EPOCHS, min(MOST_EPOCHS, enough))


def refine(
    trainer: Trainer,
    subspaces: Subspaces,
    labels: Tensor,
    doubt: Tensor,
    agreed: Callable[[Tensor], tuple[Tensor, Tensor]],
    epochs: int,
    run: Run,
) -> DeepNetwork:
    """Let an encoder learn clusters (n,), and then what it and another view agree on.

    `doubt` (n,) says how unsure each of the clusters is; both are those of all samples. `agreed`
    makes of the distances (n, k) of this process's samples to the subspaces the clusters (n,) that
    both views hold together, and how unsure these are (n,).

    `subspaces` are coordinates that do not move: fitted anew, a subspace of more dimensions than
    its members use takes up directions of the clusters that they are mistaken for, and the mistakes
    are learnt.
    """
    k, batches = subspaces.n_clusters, trainer.batches
    first, n = place(batches.source)
    own = slice(first, first + len(batches))
    sizes = torch.bincount(labels.long(), minlength=k)
    begun, doubt = labels[own].long().to(run.device), doubt[own].to(run.device)
    shares = ((sizes + 1) / (n + k)).float().to(run.device)  # none has nothing
    about = LossOptions(TEMPERATURE, BALANCE, shares, run.group)
    hold, taught = max(1, round(HOLD * epochs)), Taught(begun, first, run.group)
    now: Tensor | None = None
    for epoch in run.epochs(STAGE, epochs, trainer=trainer, taught=taught):
        if now is None:  # the first epoch of a fit, new or resumed
            now = begun if epoch == 0 else nearest_subspace(trainer, subspaces).labels.long()
        if epoch < hold:
            keep = run.group.keep_nearest(doubt, begun, TRIM, k)
            taught.labels = begun.where(keep, -1)
        elif (epoch - hold) % LOOK_EVERY == 0:
            found, unsure = agreed(distances(trainer, subspaces))
            keep = run.group.keep_nearest(unsure, found, OF_COMBINED * TRIM, k)
            taught.labels = found.where(keep, -1)
        targets = run.group.gather(taught.labels)  # mini-batches are drawn from all samples
        for batch in trainer.epoch(epoch):
            _, z = trainer.wrapped(batch.seen)
            own_targets = targets[batch.rows.to(targets.device)].to(z.device)
            loss = separation_loss(z, subspaces, own_targets, batch.samples, about)
            trainer.step(batch, loss.new_zeros(()), loss, 1.0)
        _, loss_mean = trainer.losses()
        nearest = nearest_subspace(trainer, subspaces)
        (moved,) = run.group.add(int((nearest.labels != now).sum()))
        now = nearest.labels.long()
        stop = run.record(
            stage=STAGE,
            epoch=epoch + 1,
            epochs=epochs,
            subspace=loss_mean,
            objective=nearest.objective,
            relative=nearest.relative,
            changed=moved / n,
            sizes=nearest.sizes.tolist(),
        )
        if run.group.any(stop):
            break
    return trainer.encoding


def refining(
    batches: Minibatches,
    k: int,
    augment: Augmentation | None,
    learning_rate: float,
    epochs: int,
    run: Run,
) -> tuple[Trainer, Subspaces]:
    """A new encoder and its trainer, and orthogonal subspaces in coordinates that it can choose."""
    p = max(2, min(MOST_DIM, LATENT_DIM // k))
    # Not torch's global generator: the user's own random numbers stay as they were.
    with seeded(run.seed):
        encoder = ConvEncoder(batches.shape, k * p)
    placed(encoder, run.device)
    send_module(run.group, [encoder])
    trainer = Trainer(
        DeepNetwork(encoder, UnitLatent(), decodes=False),
        batches,
        run,
        "the refinement",
        epochs=epochs,
        learning_rate=learning_rate,
        schedule="one-cycle",
        augment=augment,
        average=AVERAGE,
    )
    return trainer, Subspaces.along_axes(k, p).to(torch.float32, run.device)


def nearest_subspace(trainer: Trainer, subspaces: Subspaces) -> Assignment:
    """The nearest subspace of every sample of this process, by the network as it is now."""
    latents = encode(trainer.batches, trainer.encoding)
    return assign(Blocks(latents, torch.float32, trainer.run.device), subspaces, trainer.run.group)


def distances(trainer: Trainer, subspaces: Subspaces) -> Tensor:
    """Squared distances (n, k) of the latents of this process to every subspace."""
    blocks = Blocks(encode(trainer.batches, trainer.encoding), torch.float32, trainer.run.device)
    return torch.cat([subspaces.residuals(z) for _, z in blocks])
