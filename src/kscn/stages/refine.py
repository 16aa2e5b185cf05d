"""The second stage of a `KSCNPlus` fit: an encoder learns the clusters, and corrects them.

`kscn.stages.cotraining` trains it. What it found is kept if its members find back as
well as those of the clusters that it began with.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source
from kscn.neighbours import View, nearest, self_consistency
from kscn.neighbours.consistency import ASKED
from kscn.nn import ConvEncoder, UnitLatent, network
from kscn.runtime.blocks import Blocks
from kscn.runtime.checkpoint import State
from kscn.runtime.device import placed, seeded
from kscn.runtime.group import place, send_module
from kscn.runtime.labels import in_order
from kscn.stages.alternate import Epoch
from kscn.stages.choose import (
    SAMPLE,
    Choose,
    drawn_rows,
    growth_sample,
    held_features,
    in_memory,
    sample,
)
from kscn.stages.cotraining import FeatureView, Refinement
from kscn.stages.grow import dimensions
from kscn.stages.pretrain import Trainer
from kscn.stages.run import Fit, Stage
from kscn.stages.select import FIRST_DIM
from kscn.subspaces import Subspaces


@dataclass(frozen=True)
class Rules:
    """The numbers of the refinement.

    Parameters
    ----------
    steps, fewest_epochs, most_epochs : int
        Where `epochs` is "auto": about so many steps, within these numbers of epochs.
    trim : float
        Share of each cluster of the start, its least clear samples, that does not teach the
        encoder; a fifth of it once encoder and features settle the clusters together.
    temperature : float
        Of the energies as logits.
    balance : float
        How much clusters are held to the sizes that they had at the start.
    hold : float
        Share of the epochs in which the network learns the clusters of the start.
    look_every : int
        Epochs between two looks at the subspaces of the features, after that.
    average : float
        Of the average of the weights, per step.
    bias : float
        The clusters of the start come from the very features that judge and are favoured by them:
        true labels of handwritten digits measure up to this much less.
    latent_dim, most_dim : int
        Latent dimensions shared out between the subspaces of the encoder, and at most per one.
    """

    steps: int = 8200
    fewest_epochs: int = 12
    most_epochs: int = 60
    trim: float = 0.1
    temperature: float = 0.1
    balance: float = 0.5
    hold: float = 0.3
    look_every: int = 2
    average: float = 0.99
    bias: float = 0.02
    latent_dim: int = 80
    most_dim: int = 8


REFINEMENT = Rules()


class Refine(Stage):
    """An encoder learns the clusters of the choice and corrects them; kept if that is no worse.

    Parameters
    ----------
    estimator : KSCNPlus
        Its model gets the encoder.
    choice : Choose
        Has run.

    Attributes
    ----------
    found : tuple of Subspaces, ndarray, float
        Subspaces, labels and inertia, once the stage has run.
    """

    name = "refine"

    def __init__(self, estimator: Any, choice: Choose) -> None:
        self.estimator, self.choice = estimator, choice
        self.refinement: Refinement | None = None

    def run(self, fit: Fit) -> None:
        """Refine for the epochs that are left, and compare with the clusters before."""
        epochs = self._epochs(place(fit.source)[1])
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
        self.found = refinement.numbered()[:3]
        if self.estimator.refine is not True and not self._better(fit):
            self._take_back(fit)

    def state_dict(self) -> State | None:
        """That of the refinement."""
        return None if self.refinement is None else self.refinement.state_dict()

    def _better(self, fit: Fit) -> bool:
        """Whether members find back to the new clusters as well as to those before."""
        assert self.choice.start is not None and self.choice.wide is not None
        features = fit.group.holding(self.choice.wide.to(fit.device).source(fit.source))
        new, old, k = self.found[1], self.choice.start.labels, self.estimator.n_clusters
        return better(features, new, old, k, fit)

    def _take_back(self, fit: Fit) -> None:
        """What `predict` says by the features, which is not what a refinement learns from."""
        assert self.choice.start is not None
        model = self.estimator.model_
        model.network, model.scaling, self.estimator.n_iter_ = None, None, 0
        features = held_features(model.features.to(fit.device), fit.source, fit.group)
        blocks = Blocks(features, torch.float32, fit.device)
        subspaces = self.choice.start.subspaces.to(torch.float32, fit.device)
        self.found = in_order(blocks, subspaces, fit.group)[:3]

    def _refinement(self, fit: Fit, epochs: int) -> Refinement:
        """The refinement where it begins."""
        estimator, start, wide = self.estimator, self.choice.start, self.choice.wide
        model, source, group, device = estimator.model_, fit.source, fit.group, fit.device
        assert start is not None and start.doubt is not None and wide is not None
        k = estimator.n_clusters
        p = latent_dims(k)
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
            average=REFINEMENT.average,
            group=group,
            safe_points=fit.safe_points,
        )
        first, n = place(source)
        own = slice(first, first + len(source))
        return Refinement(
            trainer,
            # Orthogonal to each other, in coordinates that the network can choose.
            Subspaces.along_axes(k, p).to(torch.float32, device),
            torch.from_numpy(start.labels)[own],
            start.doubt[own],
            partial(self._view, fit),
            hold=max(1, round(REFINEMENT.hold * epochs)),
            # Once only where features have to be computed for it.
            every=REFINEMENT.look_every if in_memory(n, wide._n_features_out, group) else epochs,
            trim=REFINEMENT.trim,
            temperature=REFINEMENT.temperature,
            balance=REFINEMENT.balance,
            shares=_shares(start.labels, k),
        )

    def _view(self, fit: Fit) -> FeatureView:
        assert self.choice.wide is not None
        features = held_features(self.choice.wide.to(fit.device), fit.source, fit.group)
        k = self.estimator.n_clusters
        return feature_view(features, k, fit)

    def _epochs(self, n: int) -> int:
        given = self.estimator.epochs
        if not isinstance(given, str):
            return int(given)
        enough = -(-REFINEMENT.steps * self.estimator.batch_size // n)
        return max(REFINEMENT.fewest_epochs, min(REFINEMENT.most_epochs, enough))


def latent_dims(k: int) -> int:
    """The dimension of each of k subspaces in the latent of an encoder."""
    return max(2, min(REFINEMENT.most_dim, REFINEMENT.latent_dim // k))


def feature_view(features: Source, k: int, fit: Fit) -> FeatureView:
    """Subspaces of fixed features, for whatever k clusters the refinement will have."""
    rows, z = growth_sample(features, fit.seed, fit.device, fit.group)
    first = max(1, min(FIRST_DIM, z.shape[1] // 2))
    dim = (dimensions(first, len(rows) // k, z.shape[1]) or [first])[-1]
    return FeatureView(features, z, torch.from_numpy(rows).to(fit.device), dim, fit.seed, fit.group)


def better(features: Source, new: NDArray, old: NDArray, k: int, fit: Fit) -> bool:
    """Whether members of new clusters find back at least as well as those of the old ones."""
    rows = drawn_rows(len(new), SAMPLE, fit.seed)
    z = sample(features, rows, fit.device, fit.group).float()
    view = View(z, nearest(z, ASKED).index)
    after, before = (
        self_consistency([view], torch.from_numpy(labels[rows]).long().to(z.device), k, fit.seed)
        for labels in (new, old)
    )
    return bool(fit.group.agree_int(after.value >= before.value - REFINEMENT.bias))


def _shares(labels: NDArray, k: int) -> Tensor:
    """The share of the samples in each cluster, (k,); none has nothing."""
    return torch.from_numpy((np.bincount(labels, minlength=k) + 1) / (len(labels) + k)).float()
