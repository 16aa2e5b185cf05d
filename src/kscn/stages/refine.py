"""The second stage of a `KSCNPlus` fit: an encoder learns the clusters, and corrects them.

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

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source
from kscn.features import FeatureChain
from kscn.neighbours import View, nearest, self_consistency
from kscn.neighbours.consistency import CONSISTENCY
from kscn.nn import ConvEncoder, UnitLatent, network
from kscn.runtime.blocks import Blocks
from kscn.runtime.checkpoint import State
from kscn.runtime.device import placed, seeded
from kscn.runtime.folds import drawn
from kscn.runtime.group import ALONE, Group, place, send_module
from kscn.runtime.labels import Numbered, in_order
from kscn.stages.alternation import Alternation, Epoch
from kscn.stages.choose import (
    CHOICE,
    Choose,
    Start,
    drawn_rows,
    growth_sample,
    held_features,
    in_memory,
    sample,
)
from kscn.stages.grow import GROWTH, dimensions, fold_of, grow, residuals_across
from kscn.stages.pretrain import Trainer
from kscn.stages.run import Fit, Stage
from kscn.subspaces import Subspaces

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
# The clusters of the start come from the very features that judge and are favoured by them:
# true labels of handwritten digits measure up to this much less.
BIAS = 0.02
# Latent dimensions shared out between the subspaces of the encoder, and at most per one.
LATENT_DIM = 80
MOST_DIM = 8
# Samples of all processes that a temperature is found on, halvings of the range that it is
# sought in, and this range around the usual gap between first and second.
CALIBRATED = 20_000
HALVINGS = 24
RANGE = 1e3


class Refine(Stage):
    """An encoder learns the clusters of the choice and corrects them; kept if that is no worse.

    The model of the estimator gets the encoder; the subspaces, labels and inertia are in `found`.
    """

    name = "refine"

    def __init__(self, estimator: Any, choice: Choose) -> None:
        self.estimator, self.choice = estimator, choice
        self.refinement: Refinement | None = None

    def run(self, fit: Fit) -> None:
        """Refine for the epochs that are left, and compare with the clusters before."""
        epochs = self._epochs(place(fit.source)[1])
        start, wide = self._start
        refinement = self.refinement = self._refinement(fit, epochs)
        if self.loaded is None:
            refinement.begin()
        else:
            refinement.load_state_dict(self.loaded)

        def on_epoch(epoch: Epoch) -> bool:
            facts = asdict(epoch)
            del facts["reconstruction"]
            number = facts.pop("number")
            return fit.record({"stage": "fit", "epoch": number, "epochs": epochs, **facts})

        refinement.run(epochs, 0.0, on_epoch)
        fit.safe_points.reached()
        model = self.estimator.model_
        averaged, model.latent = refinement.trainer.encoding
        model.network = averaged.requires_grad_(False)
        model.eval()
        self._keep(refinement.numbered())
        if not self.estimator._refines:
            features = fit.group.holding(wide.to(fit.device).source(fit.source))
            if not better(features, self.found[1], start.labels, self.estimator.n_clusters, fit):
                self._take_back(start, fit)

    def state_dict(self) -> State | None:
        """That of the refinement."""
        return None if self.refinement is None else self.refinement.state_dict()

    @property
    def _start(self) -> tuple[Start, FeatureChain]:
        """What the choice found, and the features that co-training asks."""
        assert self.choice.start is not None and self.choice.wide is not None
        return self.choice.start, self.choice.wide

    def _take_back(self, start: Start, fit: Fit) -> None:
        """What `predict` says by the features, which is not what a refinement learns from."""
        model = self.estimator.model_
        model.network, model.scaling, self.estimator.n_iter_ = None, None, 0
        features = held_features(model.features.to(fit.device), fit.source, fit.group)
        blocks = Blocks(features, torch.float32, fit.device)
        subspaces = start.subspaces.to(torch.float32, fit.device)
        self._keep(in_order(blocks, subspaces, fit.group))

    def _keep(self, numbered: Numbered) -> None:
        self.found, self.order = numbered[:3], numbered.order

    @property
    def start_labels(self) -> NDArray:
        """Labels before the refinement, in the numbers that clusters have after it."""
        return self.order.argsort().numpy().astype(np.int32)[self._start[0].labels]

    def _refinement(self, fit: Fit, epochs: int) -> Refinement:
        """The refinement where it begins."""
        estimator, (start, wide) = self.estimator, self._start
        model, source, group, device = estimator.model_, fit.source, fit.group, fit.device
        assert start.doubt is not None
        k = estimator.n_clusters
        p = max(2, min(MOST_DIM, LATENT_DIM // k))
        # Not torch's global generator: the user's own random numbers stay as they were.
        with seeded(fit.seed):
            encoder = ConvEncoder(model.shape, k * p)
        placed(encoder, device)
        send_module(group, [encoder])
        model.scaling = group.scaling(source, image=True).to(device)
        trainer = Trainer(
            encoder,
            UnitLatent(),
            model.batches(source, device, group.batch_size(estimator.batch_size)),
            epochs=epochs,
            learning_rate=estimator.learning_rate,
            schedule="one-cycle",
            augment=network.augmentation(estimator.augment, model.shape),
            generator=fit.generator,
            stage="the refinement",
            reconstruct=False,
            average=AVERAGE,
            group=group,
            safe_points=fit.safe_points,
        )
        first, n = place(source)
        own = slice(first, first + len(source))
        sizes = np.bincount(start.labels, minlength=k)
        return Refinement(
            trainer,
            # Orthogonal to each other, in coordinates that the network can choose.
            Subspaces.along_axes(k, p).to(torch.float32, device),
            torch.from_numpy(start.labels)[own],
            start.doubt[own],
            lambda: feature_view(held_features(wide.to(device), source, group), k, fit),
            hold=max(1, round(HOLD * epochs)),
            # Once only where features have to be computed for it.
            every=LOOK_EVERY if in_memory(n, wide._n_features_out, group) else epochs,
            trim=TRIM,
            temperature=TEMPERATURE,
            balance=BALANCE,
            shares=torch.from_numpy((sizes + 1) / (n + k)).float(),  # none has nothing
        )

    def _epochs(self, n: int) -> int:
        given = self.estimator.epochs
        if not isinstance(given, str):
            return int(given)
        enough = -(-STEPS * self.estimator.batch_size // n)
        return max(FEWEST_EPOCHS, min(MOST_EPOCHS, enough))


def better(features: Source, new: NDArray, old: NDArray, k: int, fit: Fit) -> bool:
    """Whether new clusters are as self-consistent as the old ones, up to the bias against them."""
    rows = drawn_rows(len(new), CHOICE.sample, fit.seed)
    z = sample(features, rows, fit.device, fit.group).float()
    view = View(z, nearest(z, CONSISTENCY.asked).index)
    after, before = (
        self_consistency([view], torch.from_numpy(labels[rows]).long().to(z.device), k, fit.seed)
        for labels in (new, old)
    )
    return bool(fit.group.agree_int(after.value >= before.value - BIAS))


# Co-training --------------------------------------------------------------------------------------


class Refinement(Alternation):
    """An alternation that begins with given clusters and goes on by co-training.

    The trainer has an encoder without reconstruction, its weights averaged over time, which moves
    towards the subspaces. The samples of this process have the clusters `labels` (n,) for the
    first `hold` epochs, each as unsure as `doubt` (n,) says. Then `view`, which is made when it is
    wanted because features may take long, is looked at once in `every` epochs. Clusters should
    keep the `shares` (k,) of all samples that they had at the start.
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
        labels, doubt, trim = self.given, self.doubt, self.trim
        if since >= 0:
            labels, doubt = self.view.combined(self._distances())
            trim = OF_COMBINED * self.trim
        keep = self.group.keep_nearest(doubt, labels, trim, self.subspaces.n_clusters)
        return labels.where(keep, -1)

    def _distances(self) -> Tensor:
        """Squared distances (n, k) of the latents to every subspace."""
        return torch.cat([self.subspaces.residuals(z) for _, z in self._blocks()])


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


def feature_view(features: Source, k: int, fit: Fit) -> FeatureView:
    """Subspaces of fixed features, for whatever k clusters the refinement will have."""
    rows, z = growth_sample(features, fit.seed, fit.device, fit.group)
    first = max(1, min(GROWTH.first_dim, z.shape[1] // 2))
    dim = [first, *dimensions(first, len(rows) // k, z.shape[1])][-1]
    return FeatureView(features, z, torch.from_numpy(rows).to(fit.device), dim, fit.seed, fit.group)


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
