"""The driver of a fit: its seed, device and processes, its history, and the states between epochs.

A fit asks the driver for the epochs of its stages, one stage after the other:

    for epoch in run.epochs("pretrain", 20, trainer=trainer):
        ...
        if run.record(stage="pretrain", epoch=epoch + 1, loss=loss):
            break

With a directory, the driver writes what the stage goes on from after an epoch. A fit of the same
settings on the same data that finds such a state skips the stages that are over, and goes on with
the epoch after it. All randomness of an epoch is a function of (seed, epoch, step), so that the
result is the same, and a kill loses at most the epoch that was going on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kscn.nn.network import part
from kscn.runtime.group import ALONE, Group
from kscn.training.states import State, States

# After an epoch but the last a state is written unless that takes more than this share of the time.
SHARE = 0.05

Tensors = dict[str, Tensor]


class Stateful(Protocol):
    """What a stage goes on from: a trainer, a module, the labels of an iteration."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """All of it as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Go on from there."""


@dataclass
class Result:
    """What a stage without epochs has found: facts that fit into JSON, and tensors."""

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)

    def part(self, name: str) -> Tensors:
        """The tensors under `name.`, without that prefix."""
        return part(self.tensors, name)


class Run:
    """One fit, new or resumed.

    Parameters
    ----------
    seed : int
        Of everything random; a resumed fit has that of its state.
    device : torch.device
        Where to compute.
    group : Group
        The processes that fit together.
    states : States, optional
        Where states are written and read.
    on_record : callable
        Called with every record of the history; one that returns True asks the stage to end.
    """

    def __init__(
        self,
        seed: int,
        device: torch.device,
        group: Group = ALONE,
        states: States | None = None,
        on_record: Callable[[dict[str, Any]], object] = lambda _: None,
    ) -> None:
        self.device, self.group, self.on_record = device, group, on_record
        self._states = states
        saved = group.shared(states.newest() if states and group.rank == 0 else None)
        self._saved: State | None = saved
        self._kept: dict[str, nn.Module] = {}
        self.seed = group.shared(seed) if saved is None else saved.facts["seed"]
        self.history: list[dict[str, Any]] = [] if saved is None else saved.facts["history"]
        self._results: dict[str, dict[str, Any]] = {} if saved is None else saved.facts["results"]
        self._found: Tensors = {} if saved is None else saved.part("results")
        passed = self.history[-1]["seconds"] if self.history else 0.0
        self._began = time.perf_counter() - passed
        self._written, self._cost = time.monotonic(), 0.0

    def record(self, **facts: Any) -> bool:
        """Put a record into the history; whether somebody who sees it asks the stage to end."""
        facts["seconds"] = time.perf_counter() - self._began
        self.history.append(facts)
        return self.on_record(facts) is True

    def keep(self, **modules: nn.Module) -> None:
        """Keep the weights of modules in all states from now on; a resumed fit gets them now."""
        self._kept |= modules
        for name, module in modules.items():
            if self._saved is not None and (weights := self._saved.part(name)):
                module.load_state_dict(weights)

    def epochs(self, stage: str, count: int, **parts: Stateful) -> Iterator[int]:
        """The epochs of a stage that are left, from 0 on; `parts` are what it goes on from."""
        first = 0
        if self._saved is not None:
            if self._saved.facts["stage"] != stage:
                return  # it was over
            first = self._saved.facts["epoch"]
            for name, part in parts.items():
                part.load_state_dict(self._saved.part(name))
            self._saved = None
        for epoch in range(first, count):
            yield epoch
            self._save(stage, epoch + 1, parts, always=epoch + 1 == count)

    def once(self, stage: str, find: Callable[[], Result]) -> Result:
        """What a stage without epochs finds; a resumed fit past it has that in its state."""
        if stage not in self._results:
            found = find()
            self._results[stage] = found.facts
            self._found |= {f"{stage}.{name}": value for name, value in found.tensors.items()}
            self._save(stage, 0, {}, always=True)
        elif self._saved is not None and self._saved.facts["stage"] == stage:
            self._saved = None
        return Result(self._results[stage], part(self._found, stage))

    def _save(
        self, stage: str, epoch: int, parts: Mapping[str, Stateful], always: bool = False
    ) -> None:
        if self._states is None:
            return
        waited = time.monotonic() - self._written
        if not self.group.any(always or self._cost <= SHARE * waited):
            return
        began = time.monotonic()
        facts = {"stage": stage, "epoch": epoch, "seed": self.seed}
        facts |= {"history": self.history, "results": self._results}
        state = State(facts)
        state.put("results", self._found)
        for name, one in {**self._kept, **parts}.items():
            state.put(name, one.state_dict())  # of some parts all processes have a share
        if self.group.rank == 0:
            self._states.write(state)
        self._written = time.monotonic()
        self._cost = self._written - began
