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

from collections.abc import Callable

import torch
from torch import Tensor

from kscn.nn import ConvEncoder, DeepNetwork, UnitLatent
from kscn.runtime.blocks import Blocks
from kscn.runtime.device import seeded
from kscn.runtime.labels import assign
from kscn.runtime.minibatches import Minibatches
from kscn.subspaces import Subspaces, keep_nearest
from kscn.training.driver import Held, Run
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


def refinement_epochs(n: int, batch_size: int) -> int:
    """About as many steps for any number of samples, within limits."""
    enough = -(-STEPS * batch_size // n)
    return max(FEWEST_EPOCHS, min(MOST_EPOCHS, enough))


def refine(
    trainer: Trainer,
    subspaces: Subspaces,
    labels: Tensor,
    doubt: Tensor,
    agreed: Callable[[Blocks], tuple[Tensor, Tensor]],
    epochs: int,
    run: Run,
) -> DeepNetwork:
    """Let an encoder learn clusters (n,), and then what it and another view agree on.

    `doubt` (n,) says how unsure each of the clusters is; both are those of all samples. `agreed`
    makes of the latents of this process the clusters (n,) that both views hold together, and how
    unsure these are (n,).

    `subspaces` are coordinates that do not move: fitted anew, a subspace of more dimensions than
    its members use takes up directions of the clusters that they are mistaken for, and the mistakes
    are learnt.
    """
    n, k, labels = len(labels), subspaces.n_clusters, labels.long().to(run.device)
    shares = (torch.bincount(labels, minlength=k) + 1) / (n + k)  # an empty one has more than none
    about = LossOptions(TEMPERATURE, BALANCE, shares, run.group)
    clear = keep_nearest(doubt.to(run.device), labels, TRIM, k)
    # Of all samples: the clusters that they are in, and those that the network learns, -1 for none.
    now, hold = Held(labels=labels, learnt=labels.where(clear, -1)), max(1, round(HOLD * epochs))
    for epoch in run.epochs(STAGE, epochs, trainer=trainer, now=now):
        if epoch >= hold and (epoch - hold) % LOOK_EVERY == 0:
            found, unsure = agreed(trainer.latents())
            keep = run.group.keep_nearest(unsure, found, OF_COMBINED * TRIM, k)
            now["learnt"] = run.group.gather(found.where(keep, -1))
        for batch in trainer.epoch(epoch):
            _, z = trainer.wrapped(batch.seen)
            learnt = now["learnt"][batch.rows.to(z.device)]
            loss = separation_loss(z, subspaces, learnt, batch.samples, about)
            trainer.step(batch, loss, subspace=loss)
        nearest = assign(trainer.latents(), subspaces, run.group)
        before, now["labels"] = now["labels"], run.group.gather(nearest.labels.long())
        stop = run.record(
            stage=STAGE,
            epoch=epoch + 1,
            epochs=epochs,
            **trainer.losses(),
            objective=nearest.objective,
            relative=nearest.relative,
            changed=int((now["labels"] != before).sum()) / n,
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
    encoder.to(run.device)
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
