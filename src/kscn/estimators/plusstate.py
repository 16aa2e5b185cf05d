"""How far a `KSCNPlus` fit is: what its checkpoints hold, and what its processes agree on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source
from kscn.estimators import network
from kscn.estimators.fittedfile import plain
from kscn.estimators.progress import Progress
from kscn.estimators.representation import Candidate, Representation
from kscn.features import FeatureChain
from kscn.nn import ConvEncoder
from kscn.subspaces import Subspaces
from kscn.subspaces.search import Candidates
from kscn.training.checkpoint import Keeper, State, prefixed, shared
from kscn.training.distributed import Group

# What the estimator knows of the representation, besides the features themselves.
CHOSEN = ("components_", "whiten_", "subspace_dim_", "agreement_")


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
        self.features: Source | None = None  # of the samples, once they were computed
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
        if self.encoder is not None:
            state.tensors |= prefixed("encoder", self.encoder.state_dict())
        return state

    def _found(self, saved: State) -> Start:
        """The start of the saved state, whose features the estimator gets."""
        for name in CHOSEN:
            setattr(self.estimator, name, saved.facts[name])
        self.estimator.features_ = _features(saved)
        found = saved.part("start")
        return Start(
            Subspaces(found["bases"]),
            found["labels"].numpy(),
            saved.facts["inertia"],
            found.get("doubt"),
        )


def agreed(chosen: Representation, group: Group) -> Representation:
    """The representation that the first process has chosen: rounding may lead others elsewhere."""
    config, arrays = chosen.components.state()
    facts = {
        "features": config,
        "candidate": asdict(chosen.candidate),
        "agreement": chosen.agreement,
    }
    tensors = prefixed("features", {name: torch.from_numpy(a) for name, a in arrays.items()})
    tensors |= {
        "subspaces": chosen.subspaces.bases,
        "runs": torch.cat([run.bases for run in chosen.runs]),
        "used": torch.cat([run.used for run in chosen.runs]),
    }
    sent = shared(group, State(facts, tensors) if group.rank == 0 else None)
    assert sent is not None
    runs = zip(sent.tensors["runs"].split(1), sent.tensors["used"].split(1), strict=True)
    return replace(
        chosen,
        components=_features(sent).to(chosen.components.device),
        candidate=Candidate(**sent.facts["candidate"]),
        subspaces=Subspaces(sent.tensors["subspaces"]),
        agreement=sent.facts["agreement"],
        runs=[Candidates(bases, None, used) for bases, used in runs],
    )


def _features(state: State) -> FeatureChain:
    arrays = {name: tensor.numpy() for name, tensor in state.part("features").items()}
    return FeatureChain.from_state(state.facts["features"], arrays)
