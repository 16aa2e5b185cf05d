"""How far a `KSCNPlus` fit is, and what its checkpoints hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.estimators import network
from kscn.estimators.progress import Progress
from kscn.estimators.saving import plain
from kscn.features import FeatureChain
from kscn.nn import ConvEncoder
from kscn.subspaces import Subspaces
from kscn.training.checkpoint import Keeper, State, prefixed
from kscn.training.distributed import Group

# What the estimator knows of the representation, besides the features themselves.
CHOSEN = ("confidence_", "chosen_", "subspace_dim_", "tried_")


@dataclass(frozen=True)
class Start:
    """The clusters before the refinement.

    Attributes
    ----------
    subspaces : Subspaces
        In the space of the features.
    labels : ndarray of shape (n,)
        Of all samples.
    inertia : float
        Sum of squared distances to these subspaces.
    doubt : Tensor, shape (n,), optional
        How unsure each label is; left out where nothing is refined.
    """

    subspaces: Subspaces
    labels: NDArray
    inertia: float
    doubt: Tensor | None


class PlusProgress(Progress):
    """The stages of a `KSCNPlus` fit.

    Everything up to the `start` is one stage that is begun anew: it has an end in sight and its
    seed makes it come out the same. Later states hold what it found.
    """

    stages = ("start", "fit", "finish")

    def __init__(self, estimator: Any, keeping: Keeper, saved: State | None, group: Group) -> None:
        super().__init__(estimator, keeping, saved, group)
        self.start: Start | None = None
        self.wide: FeatureChain | None = None  # what a refinement asks the features of
        self.encoder: ConvEncoder | None = None
        if saved is not None and self.past("start"):
            self.start = self._found(saved)

    def train(self, encoder: ConvEncoder) -> None:
        """Put the encoder where it was; from now on its weights are part of every state."""
        self.encoder = encoder
        if self.saved is not None and self.past("start"):
            network.load_weights(encoder, self.saved.part("encoder"), "the checkpoint")

    def held(self) -> State:
        """The features, the start and the weights, as far as they are there."""
        start = self.start
        if start is None:
            return State({"history": []})  # it will be told again
        facts = {name: plain(getattr(self.estimator, name)) for name in CHOSEN}
        config, arrays = self.estimator.features_.state()
        tensors = {"bases": start.subspaces.bases, "labels": torch.from_numpy(start.labels)}
        if start.doubt is not None:
            tensors["doubt"] = start.doubt
        state = State(
            facts | {"features": config, "inertia": start.inertia},
            prefixed("features", {name: torch.from_numpy(a) for name, a in arrays.items()})
            | prefixed("start", tensors),
        )
        if self.wide is not None:
            state.facts["wide"], arrays = self.wide.state()
            state.tensors |= prefixed("wide", {k: torch.from_numpy(a) for k, a in arrays.items()})
        if self.encoder is not None:
            state.tensors |= prefixed("encoder", self.encoder.state_dict())
        return state

    def _found(self, saved: State) -> Start:
        """The start of the saved state, whose features the estimator gets."""
        for name in CHOSEN:
            setattr(self.estimator, name, saved.facts.get(name))  # older states lack some
        self.estimator.model_.features = chain_of(saved, "features")
        if "wide" in saved.facts:
            self.wide = chain_of(saved, "wide")
        found = saved.part("start")
        return Start(
            Subspaces(found["bases"]),
            found["labels"].numpy(),
            saved.facts["inertia"],
            found.get("doubt"),
        )


def chain_of(state: State, name: str) -> FeatureChain:
    """The feature maps that a state holds under a name."""
    arrays = {key: tensor.numpy() for key, tensor in state.part(name).items()}
    return FeatureChain.from_state(state.facts[name], arrays)
