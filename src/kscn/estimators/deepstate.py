"""How far a deep fit is: what its checkpoints hold, and where a fit that finds one goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kscn.estimators import network
from kscn.nn import IdentityLatent, WhitenedLatent
from kscn.subspaces import Subspaces
from kscn.training.checkpoint import Keeper, State, generator_states, restore_generator
from kscn.training.distributed import Group

STAGES = ("pretrain", "start", "fit", "finish")
# Between the seeds of neighbouring processes.
RANK_SEED = 1_000_003


class DeepProgress:
    """The stages of a `KSCN` fit, of which a saved state names the one to go on with.

    Parameters
    ----------
    estimator : KSCN
        Its networks, seed and history are part of every state.
    keeper : Keeper
        Writes states.
    saved : State, optional
        Where the fit was.
    group : Group
        The processes that fit together.
    """

    def __init__(self, estimator: Any, keeper: Keeper, saved: State | None, group: Group) -> None:
        self.estimator = estimator
        self.keeper = keeper
        self.saved = saved
        self.group = group
        # Processes shuffle and augment their own samples, each in its own way.
        seed = estimator.random_state_ + group.rank * RANK_SEED
        self.generator = torch.Generator().manual_seed(seed)
        if saved is not None:
            restore_generator(self.generator, saved.tensors["generator"], group)

    def generators(self) -> dict[str, Tensor]:
        """The generators of all processes, for a state."""
        return {"generator": generator_states(self.generator, self.group)}

    @property
    def seconds(self) -> float:
        """How long the fit had gone on when it was saved."""
        history = [] if self.saved is None else self.saved.facts["history"]
        return float(history[-1]["seconds"]) if history else 0.0

    def at(self, stage: str) -> State | None:
        """The saved state, if the fit was in this stage."""
        return self.saved if self.saved is not None and self.saved.facts["stage"] == stage else None

    def past(self, stage: str) -> bool:
        """Whether the fit was beyond this stage."""
        if self.saved is None:
            return False
        return STAGES.index(self.saved.facts["stage"]) > STAGES.index(stage)

    def enter(self, stage: str, state: Callable[[], State]) -> None:
        """From now on, a checkpoint says that the fit is in this stage and in this state."""
        self.keeper.snapshot = partial(self._snapshot, stage, state)

    def _snapshot(self, stage: str, state: Callable[[], State]) -> State:
        estimator, found = self.estimator, state()
        facts = {"stage": stage, "seed": estimator.random_state_, "history": estimator.history_}
        tensors = dict(found.tensors)
        for name, module in (
            ("autoencoder", estimator.autoencoder_),
            ("latent", estimator.latent_),
        ):
            tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        return State(found.facts | facts, tensors)

    def restore_networks(self) -> None:
        """Give the estimator the weights of the saved state; its autoencoder is there already."""
        if self.saved is None:
            return
        what = "the checkpoint"
        network.load_weights(self.estimator.autoencoder_, self.saved.part("autoencoder"), what)
        latent = latent_of(self.saved.part("latent"))
        network.load_weights(latent, self.saved.part("latent"), what)
        self.estimator.latent_ = latent.to(next(self.estimator.autoencoder_.parameters()).device)

    def subspaces(self) -> Subspaces:
        """The subspaces of the saved state."""
        assert self.saved is not None
        return Subspaces(self.saved.tensors["bases"])


def latent_of(weights: Mapping[str, Tensor]) -> nn.Module:
    """The map from codes to latents that has weights of these shapes."""
    if not weights:
        return IdentityLatent()
    kept, width = weights["linear.weight"].shape
    with torch.random.fork_rng(devices=[]):  # its own first weights are drawn and thrown away
        return WhitenedLatent(width, kept)
