"""The driver of a fit: it runs the stages, and alone knows of history, checkpoints and resuming.

A stage does its work in `run`, and says by `state_dict` where it is. The driver gives a stage the
group of processes, the device, a generator and safe points, at which a state may be written. A fit
that finds the state of the same fit in its directory loads it into the stages and goes on.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kscn.data import Source
from kscn.runtime.checkpoint import (
    State,
    generator_states,
    identity,
    prefixed,
    restore_generator,
    safe_points,
)
from kscn.runtime.group import Group, place
from kscn.stages import validation as check

RANK_SEED = 1_000_003  # between the seeds of neighbouring processes


class Stage(ABC):
    """One stage of a fit. Its state is whatever a run of it, or of those after it, goes on from."""

    name: str
    # The state to go on from, until `run` has taken it in.
    loaded: State | None = None

    @abstractmethod
    def run(self, fit: Fit) -> None:
        """Do the work, from the beginning or from the state that was loaded."""

    @abstractmethod
    def state_dict(self) -> State | None:
        """Where the stage is, or what later stages need of it; None if it has to begin anew."""

    def load_state_dict(self, state: State) -> None:
        """Let `run` go on from here."""
        self.loaded = state


class Fit:
    """One fit of an estimator, new or resumed: gives it its seed and history, and runs its stages.

    The parameters of the estimator have been checked, and `source` holds the samples of this
    process. The `weights` of the samples, like their values and the parameters, tell this fit from
    others.
    """

    def __init__(
        self,
        estimator: Any,
        source: Source,
        group: Group,
        weights: Tensor | None = None,
    ) -> None:
        self.estimator, self.source, self.group = estimator, source, group
        self.device = check.device(estimator.device)
        self.safe_points = safe_points(estimator.checkpoint_dir, group)
        # What parameters that were left to the estimator came to, as far as it says so.
        params = estimator._flat_params() | getattr(estimator, "settings_", {})
        params["sample_weight"] = weights
        self.saved = self.safe_points.load(identity(params, source, place(source)[1]))
        estimator.random_state_ = group.agree_int(check.seed(estimator.random_state))
        estimator.history_ = []
        if self.saved is not None:
            estimator.random_state_ = self.saved.facts["seed"]
            estimator.history_ = self.saved.facts["history"]
        history = estimator.history_
        estimator.n_iter_ = sum(record["stage"] == "fit" for record in history)
        estimator._began = time.perf_counter() - (history[-1]["seconds"] if history else 0.0)
        self.seed: int = estimator.random_state_
        # Processes shuffle and augment their own samples, each in its own way.
        self.generator = torch.Generator().manual_seed(self.seed + group.rank * RANK_SEED)
        if self.saved is not None:
            restore_generator(self.generator, self.saved.tensors["generator"], group)
        self.stages: Sequence[Stage] = ()
        self.number = self.told = 0  # of the stage that runs, and records when it began

    def run(self, stages: Sequence[Stage]) -> None:
        """Run the stages in order; those that a saved state has behind it only get their state."""
        saved, self.saved, self.stages = self.saved, None, stages
        self.safe_points.snapshot = self._snapshot
        reached = 0 if saved is None else saved.facts["stage"]
        for number, stage in enumerate(stages):
            if saved is not None and stage.name in saved.facts["states"]:
                facts = saved.facts["states"][stage.name]
                stage.load_state_dict(State(facts, saved.part(stage.name)))
            if number >= reached:
                self.number, self.told = number, len(self.estimator.history_)
                stage.run(self)
        self.safe_points.reached()
        self.safe_points.release()

    @property
    def stage(self) -> Stage:
        """The stage that runs."""
        return self.stages[self.number]

    def record(self, record: dict[str, Any]) -> bool:
        """Put a record into the history and call the callbacks; whether one asks to stop."""
        self.estimator.n_iter_ += record["stage"] == "fit"
        stop: bool = self.estimator._record(record)
        return stop

    def progress(self, record: dict[str, Any]) -> None:
        """Record how far a stage is that has no state yet, and stop if a signal asked for it."""
        self.record(record)
        self.safe_points.reached()

    def _snapshot(self) -> State:
        """The states of all stages so far; without one, the stage that runs is told of again."""
        history, states = self.estimator.history_, {}
        tensors = {"generator": generator_states(self.generator, self.group)}
        for stage in self.stages[: self.number + 1]:
            state = stage.state_dict()
            if state is None:
                history = history[: self.told]
                continue
            states[stage.name] = state.facts
            tensors |= prefixed(stage.name, state.tensors)
        facts = {"stage": self.number, "seed": self.seed, "history": history, "states": states}
        return State(facts, tensors)
