"""The refinement: an encoder learns clusters of images, and corrects them.

Views of an image that differ by what should not matter (a small turn, a shift) are to fall into the
subspace of the image itself. In the first epochs the clusters are those of the start, and only
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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kscn.data import Source
from kscn.nn import ConvEncoder, DeepNetwork, UnitLatent
from kscn.runtime.blocks import Blocks
from kscn.runtime.device import placed, seeded
from kscn.runtime.group import ALONE, Group, place, send_module
from kscn.runtime.labels import Assignment, assign
from kscn.runtime.latents import encode
from kscn.runtime.minibatches import Minibatches
from kscn.runtime.rows import drawn
from kscn.subspaces import Subspaces
from kscn.training.driver import Run
from kscn.training.grow import (
    GROWTH,
    dimensions,
    fold_of,
    grow,
    growth_sample,
    residuals_across,
)
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
# Samples of all processes that a temperature is found on, halvings of the range that it is
# sought in, and this range around the usual gap between first and second.
CALIBRATED = 20_000
HALVINGS = 24
RANGE = 1e3


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
    view: Callable[[], FeatureView],
    epochs: int,
    run: Run,
) -> DeepNetwork:
    """Let an encoder learn clusters (n,), and then what it and the features agree on.

    `doubt` (n,) says how unsure each of the clusters is; both are those of all samples.

    `subspaces` are coordinates that do not move: fitted anew, a subspace of more dimensions than
    its members use takes up directions of the clusters that they are mistaken for, and the mistakes
    are learnt. `view` is made when it is wanted, because features may take long.
    """
    k, batches = subspaces.n_clusters, trainer.batches
    first, n = place(batches.source)
    own = slice(first, first + len(batches))
    sizes = torch.bincount(labels.long(), minlength=k)
    begun, doubt = labels[own].long().to(run.device), doubt[own].to(run.device)
    shares = ((sizes + 1) / (n + k)).float().to(run.device)  # none has nothing
    about = LossOptions(TEMPERATURE, BALANCE, shares, run.group)
    hold, taught, features = max(1, round(HOLD * epochs)), Taught(begun, first, run.group), None
    now: Tensor | None = None
    for epoch in run.epochs(STAGE, epochs, trainer=trainer, taught=taught):
        if now is None:  # the first epoch of a fit, new or resumed
            now = begun if epoch == 0 else nearest_subspace(trainer, subspaces).labels.long()
        if epoch < hold:
            keep = run.group.keep_nearest(doubt, begun, TRIM, k)
            taught.labels = begun.where(keep, -1)
        elif (epoch - hold) % LOOK_EVERY == 0:
            features = features or view()
            found = features.combined(distances(trainer, subspaces))
            keep = run.group.keep_nearest(found.doubt, found.labels, OF_COMBINED * TRIM, k)
            taught.labels = found.labels.where(keep, -1)
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


# Co-training --------------------------------------------------------------------------------------


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
    rows = torch.arange(first, first + len(one), device=one.device)
    (count,) = group.add(len(one))
    some = drawn(rows, seed, CALIBRATED, int(count)).nonzero().flatten()
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
