"""The driver of a fit: its seed, device and processes, its history, and the states between epochs.

A fit asks the driver for the epochs of its stages, one stage after the other:

    for epoch in run.epochs("pretrain", 20, trainer=trainer):
        ...
        if run.record(stage="pretrain", epoch=epoch + 1, loss=loss):
            break

With a directory, the driver writes what the stage goes on from after an epoch. A fit of the same
settings on the same data that finds such a state skips the stages that are over, and goes on with
the epoch after it. All randomness of an epoch is a function of (seed, epoch, step), so that the
result is the same, and a kill, a full disk or a power cut loses at most the epoch that was going
on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from kscn.atomicfile import remove_directory
from kscn.data import Source
from kscn.errors import ModelFileError
from kscn.modelfile import read_model, write_model
from kscn.nn.network import part
from kscn.runtime.device import keep_memory
from kscn.runtime.group import ALONE, Group

# States on disk: one that is damaged later is no loss.
KEPT = 2
DIGITS = 6  # of their numbers
# After an epoch but the last a state is written unless that takes more than this share of the time.
SHARE = 0.05
# Parameters that say how and where to fit, and do not change what is found.
OF_THE_RUN = {"callbacks", "checkpoint_dir", "device"}


class CheckpointWarning(UserWarning):
    """A state could not be read or written, and the fit goes on without it."""


class Stateful(Protocol):
    """What a stage goes on from: a trainer, a module, the labels of an iteration."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """All of it as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Go on from there."""


class Held(dict[str, Tensor]):
    """Tensors that a stage goes on from."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """All of them."""
        return self

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from others, where these are."""
        self.update({name: value.to(self[name]) for name, value in state.items()})


@dataclass
class Result:
    """What a stage has found, or a fit goes on from: facts that fit into JSON, and tensors."""

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def put(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Take in tensors under `name.`, on the CPU."""
        for key, tensor in tensors.items():
            self.tensors[f"{name}.{key}"] = torch.as_tensor(tensor).detach().cpu()

    def part(self, name: str) -> dict[str, Tensor]:
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
        self.device, self.group, self.on_record, self._states = device, group, on_record, states
        keep_memory()
        saved = group.shared(states.newest() if states and group.rank == 0 else None)
        # Until the stage that it was written in; what is known before the first one without it.
        self._saved: Result | None = saved
        known = saved or Result({"seed": group.shared(seed), "history": [], "results": {}})
        self.seed: int = known.facts["seed"]
        self.history: list[dict[str, Any]] = known.facts["history"]
        self._results = {
            stage: Result(facts, known.part(f"results.{stage}"))
            for stage, facts in known.facts["results"].items()
        }
        self._kept: dict[str, nn.Module] = {}
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
            for name, one in parts.items():
                one.load_state_dict(self._saved.part(name))
            self._saved = None
        for epoch in range(first, count):
            yield epoch
            self._save(stage, epoch + 1, parts, always=epoch + 1 == count)

    def once(self, stage: str, find: Callable[[], Result]) -> Result:
        """What a stage without epochs finds; a resumed fit past it has that in its state."""
        if stage not in self._results:
            self._results[stage] = find()
            self._save(stage, 0, {}, always=True)
        elif self._saved is not None and self._saved.facts["stage"] == stage:
            self._saved = None
        return self._results[stage]

    def _save(self, stage: str, epoch: int, parts: Mapping[str, Stateful], always: bool) -> None:
        if self._states is None:
            return
        began = time.monotonic()
        if not self.group.any(always or self._cost <= SHARE * (began - self._written)):
            return
        facts = {"stage": stage, "epoch": epoch, "seed": self.seed, "history": self.history}
        state = Result(facts | {"results": {name: r.facts for name, r in self._results.items()}})
        for name, result in self._results.items():
            state.put(f"results.{name}", result.tensors)
        for name, one in {**self._kept, **parts}.items():
            state.put(name, one.state_dict())  # of some parts all processes have a share
        if self.group.rank == 0:
            self._states.write(state)
        self._written = time.monotonic()
        self._cost = self._written - began


# States on disk -----------------------------------------------------------------------------------


class States:
    """The states of one fit in a directory, which is made if missing.

    A state is a model directory (safetensors and JSON with checksums), complete or not there at
    all.

    Parameters
    ----------
    directory : path
        Where.
    identity : mapping
        What tells this fit from others, as plain values; the states of another one are refused.
    """

    def __init__(self, directory: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.directory, self.identity = Path(directory), identity

    def write(self, state: Result) -> None:
        """Write a state and delete all but the last ones.

        A full disk is no reason to lose the fit itself: there may be room again at its end.
        """
        facts = {"identity": self.identity, "facts": state.facts}
        found = self._found()
        number = int(found[-1].name[-DIGITS:]) + 1 if found else 1
        try:
            write_model(
                self.directory / f"state-{number:0{DIGITS}}", "Checkpoint", facts, state.tensors
            )
        except ModelFileError as error:
            warnings.warn(f"no checkpoint: {error}", CheckpointWarning, stacklevel=2)
            return
        for old in self._found()[:-KEPT]:
            remove_directory(old)

    def newest(self) -> Result | None:
        """The newest state that can be read; None where there is none."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for half in self.directory.glob(".state-*"):  # half written or deleted at a kill
                shutil.rmtree(half, ignore_errors=True)
        except OSError as error:
            raise ModelFileError(
                f"checkpoint_dir={self.directory} cannot be used: {error.strerror or error}; "
                "choose a directory that can be written."
            ) from error
        for path in reversed(self._found()):
            try:
                model = read_model(path)
                identity, facts = model.params["identity"], model.params["facts"]
            except (ModelFileError, KeyError) as error:
                warnings.warn(
                    f"{error} Going on from the state before it.", CheckpointWarning, stacklevel=2
                )
                continue
            self._refuse_another_fit(identity)
            # Copies, because arrays read from a file may be read-only.
            return Result(facts, {name: torch.tensor(a) for name, a in model.tensors.items()})
        return None

    def _found(self) -> list[Path]:
        """The states that are there, the newest last."""
        return sorted(self.directory.glob("state-" + DIGITS * "[0-9]"))

    def _refuse_another_fit(self, found: Mapping[str, Any]) -> None:
        for name in sorted({*found, *self.identity}):
            if found.get(name) != self.identity.get(name):
                raise ModelFileError(
                    f"checkpoint_dir={self.directory} holds the state of another fit: {name} was "
                    f"{found.get(name)} there and is {self.identity.get(name)} now; give an empty "
                    "directory, or that fit's settings and data."
                )


def identity(params: Mapping[str, Any], source: Source, whole: int) -> dict[str, Any]:
    """What tells a fit from others: its settings and its data, as plain values.

    `source` holds the samples of this process, of which a few are looked at; there are `whole` in
    all processes.
    """
    about: dict[str, Any] = {n: value for n, value in params.items() if n not in OF_THE_RUN}
    about |= {"samples": whole, "shape": source.shape, "dtype": source.dtype.name}
    about["first samples"] = source[: min(4, len(source))]
    plain: dict[str, Any] = json.loads(json.dumps(about, default=_named))
    return plain


def _named(value: Any) -> Any:
    """What JSON does not know: arrays by their digest, objects by their kind."""
    if isinstance(value, np.ndarray | Tensor) and np.ndim(value):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if hasattr(value, "item") else type(value).__name__
