"""How far a fit is: what all its checkpoints hold, and where a fit that finds one goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from kscn.data import Source
from kscn.estimators import validation as check
from kscn.subspaces import Subspaces
from kscn.training.checkpoint import (
    Keeper,
    State,
    generator_states,
    identity,
    keeper,
    restore_generator,
)
from kscn.training.distributed import Group, place

if TYPE_CHECKING:
    from typing_extensions import Self

# Between the seeds of neighbouring processes.
RANK_SEED = 1_000_003


class Progress:
    """The stages of a fit, of which a saved state names the one to go on with.

    A subclass says what the stages are, and what of the estimator is part of every state beside
    its seed and history.

    Parameters
    ----------
    estimator : estimator
        What is fitted.
    keeping : Keeper
        Writes states.
    saved : State, optional
        Where the fit was.
    group : Group
        The processes that fit together.
    """

    stages: ClassVar[tuple[str, ...]]

    def __init__(self, estimator: Any, keeping: Keeper, saved: State | None, group: Group) -> None:
        self.estimator = estimator
        self.keeper = keeping
        self.saved = saved
        self.group = group
        # Processes shuffle and augment their own samples, each in its own way.
        seed = estimator.random_state_ + group.rank * RANK_SEED
        self.generator = torch.Generator().manual_seed(seed)
        if saved is not None:
            restore_generator(self.generator, saved.tensors["generator"], group)

    @classmethod
    def begin(cls, estimator: Any, source: Source, group: Group) -> Self:
        """See whether this fit is new, and give the estimator its seed, history and clock."""
        check.checkpoints(estimator)
        keeping = keeper(estimator.checkpoint_dir, estimator.checkpoint_minutes, group)
        # What parameters that were left to the estimator came to, as far as it says so.
        params = estimator.get_params(deep=False) | getattr(estimator, "settings_", {})
        saved = keeping.load(identity(params, source, place(source)[1]))
        estimator.random_state_ = group.agree_int(check.seed(estimator.random_state))
        estimator.history_ = []
        if saved is not None:
            estimator.random_state_, estimator.history_ = (
                saved.facts["seed"],
                saved.facts["history"],
            )
        told = estimator.history_
        estimator.n_iter_ = sum(record["stage"] == "fit" for record in told)
        estimator._began = time.perf_counter() - (told[-1]["seconds"] if told else 0.0)
        return cls(estimator, keeping, saved, group)

    def at(self, stage: str) -> State | None:
        """The saved state, if the fit was in this stage."""
        return self.saved if self.saved is not None and self.saved.facts["stage"] == stage else None

    def past(self, stage: str) -> bool:
        """Whether the fit was beyond this stage."""
        if self.saved is None:
            return False
        return self.stages.index(self.saved.facts["stage"]) > self.stages.index(stage)

    def enter(self, stage: str, state: Callable[[], State]) -> None:
        """From now on, a checkpoint says that the fit is in this stage and in this state."""
        self.keeper.snapshot = partial(self._snapshot, stage, state)

    def _snapshot(self, stage: str, state: Callable[[], State]) -> State:
        estimator, held, found = self.estimator, self.held(), state()
        facts = {"stage": stage, "seed": estimator.random_state_, "history": estimator.history_}
        tensors = {"generator": generator_states(self.generator, self.group)}
        return State(facts | held.facts | found.facts, tensors | held.tensors | found.tensors)

    def held(self) -> State:
        """What of the estimator is part of every state."""
        raise NotImplementedError

    def subspaces(self) -> Subspaces:
        """The subspaces of the saved state."""
        assert self.saved is not None
        return Subspaces(self.saved.tensors["bases"])
