"""Saved states of a fit, so that a kill, a full disk or a power cut costs little of it.

A loop says when it has reached a safe point: between epochs or iterations, and between mini-batches
where one is `due`. Plain `SafePoints` do nothing then; `Checkpoints` write what their `snapshot`
gives into a directory, as model files: safetensors and JSON with checksums, complete or not there
at all. The last two are kept, so that one damaged later is no loss. Of many processes the first
one writes and reads; the others get everything from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from kscn.atomicfile import remove_directory
from kscn.constraints import Number, check_value
from kscn.errors import KscnError, ModelFileError
from kscn.modelfile import read_model, write_model
from kscn.runtime.group import ALONE, Group

KIND = "Checkpoint"
# Of what states hold: those of another form cannot be gone on from.
FORM = 2
KEPT = 2
# Parameters that say how and where to fit, and do not change what is found.
OF_THE_RUN = {"callbacks", "checkpoint_dir", "device"}
# Between two states at most, unless another time is asked for.
MINUTES = 10.0
# Between epochs a state is written when that takes less than this share of the time since the last.
SHARE = 0.05
# What writing takes, until it is known.
FIRST_GUESS = 0.05


class StoppedError(KscnError):
    """The fit was asked to stop and did so at a safe point; `checkpoint_dir` holds its state."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be read or written, and the fit goes on without it."""


class StopRequest:
    """A wish to stop that a signal handler leaves for the loops, which look at safe points."""

    made = False

    def make(self) -> None:
        """Ask every fit of this process to stop at its next safe point."""
        self.made = True

    def withdraw(self) -> None:
        """Let fits go on."""
        self.made = False


# Signals come to a process as a whole, so there is one.
STOP = StopRequest()


@dataclass(frozen=True)
class CheckpointDirectory(os.PathLike[str]):
    """A directory for checkpoints, and the longest time between two states of a fit.

    Parameters
    ----------
    path : path-like
        The directory.
    minutes : float, default=10
        At most this long passes between two states; where an iteration or a step takes longer, its
        end is waited for.
    """

    path: str | os.PathLike[str]
    minutes: float = MINUTES

    def __post_init__(self) -> None:
        check_value("minutes", self.minutes, [Number(0)])

    def __fspath__(self) -> str:
        return os.fspath(self.path)


@dataclass
class State:
    """What a checkpoint holds: facts that fit into JSON, and tensors on the CPU."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors below `name.`, without that prefix."""
        start = f"{name}."
        return {
            key.removeprefix(start): tensor
            for key, tensor in self.tensors.items()
            if key.startswith(start)
        }


def prefixed(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with names below `name.`, as `State.part` finds them again."""
    return {f"{name}.{key}": tensor for key, tensor in tensors.items()}


class SafePoints:
    """Where a fit may be interrupted; nothing happens there without a directory for checkpoints."""

    snapshot: Callable[[], State]

    def load(self, identity: Mapping[str, Any]) -> State | None:
        """The state to go on from, None to begin; `identity` says what fit this is."""
        return None

    def due(self) -> bool:
        """Whether a state is wanted from the middle of an epoch; for this process to say."""
        return False

    def reached(self, always: bool = False) -> None:
        """Between two epochs or iterations: write the state if it is time to, all processes."""

    def release(self) -> None:
        """Let go of what is needed for states, when a fit is over.

        It holds all latents and, in turn, this: memory that would wait for the garbage collector.
        """
        vars(self).pop("snapshot", None)


class Checkpoints(SafePoints):
    """States in a directory, which is made if missing.

    At most `minutes` pass without a state being written, also within an epoch.
    """

    def __init__(self, directory: Any, minutes: float, group: Group = ALONE) -> None:
        self.directory, self.minutes, self.group = Path(directory), minutes, group
        self.identity: dict[str, Any] = {}
        self.number = 0
        self.cost = FIRST_GUESS
        self.last = time.monotonic()

    def load(self, identity: Mapping[str, Any]) -> State | None:
        """The newest state that can be read, refused if it is of another fit."""
        self.identity = dict(identity)
        return shared(self.group, self._newest() if self.group.rank == 0 else None)

    def due(self) -> bool:
        """Whether a stop was asked for, or the minutes are over."""
        waited = time.monotonic() - self.last
        return STOP.made or (self.group.rank == 0 and waited >= 60 * self.minutes)

    def reached(self, always: bool = False) -> None:
        """Write the state if that is worth its time; then stop where that was asked for."""
        waited = time.monotonic() - self.last
        worth = self.group.rank == 0 and self.cost <= SHARE * waited
        wanted, stop = self.group.add(always or worth or self.due(), STOP.made)
        if not wanted:
            return
        state = self.snapshot()  # of all processes
        if self.group.rank == 0:
            self._write(state, must=bool(stop))
        if stop:
            raise StoppedError(f"the fit was asked to stop; its state is in {self.directory}.")

    # Files --------------------------------------------------------------------------------------

    def _write(self, state: State, must: bool) -> None:
        began = time.monotonic()
        facts = {"identity": self.identity, "facts": state.facts}
        try:
            write_model(self._path(self.number + 1), KIND, facts, state.tensors)
        except ModelFileError as error:
            if must:
                raise
            # A full disk is no reason to lose the fit itself: there may be room again at its end.
            warnings.warn(f"no checkpoint: {error}", CheckpointWarning, stacklevel=2)
        else:
            self.number += 1
            for number in self._numbers()[:-KEPT]:
                remove_directory(self._path(number))
        self.last = time.monotonic()
        self.cost = self.last - began

    def _path(self, number: int) -> Path:
        return self.directory / f"state-{number:06}"

    def _numbers(self) -> list[int]:
        """The numbers of the states that are there, ascending."""
        names = (re.fullmatch(r"state-(\d+)", entry.name) for entry in self.directory.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def _newest(self) -> State | None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for pattern in (".state-*", ".*.old-*"):  # half written or deleted at a kill
                for half in self.directory.glob(pattern):
                    shutil.rmtree(half, ignore_errors=True)
            numbers = self._numbers()
        except OSError as error:
            raise ModelFileError(
                f"checkpoint_dir={self.directory} cannot be used: {error.strerror or error}; "
                "choose a directory that can be written."
            ) from error
        self.number = max(numbers, default=0)
        for number in reversed(numbers):
            try:
                model = read_model(self._path(number))
                identity, facts = model.params["identity"], model.params["facts"]
            except (ModelFileError, KeyError) as error:
                warnings.warn(
                    f"{error} Going on from the state before it.", CheckpointWarning, stacklevel=2
                )
                continue
            self._refuse_another_fit(identity)
            # Copies, because arrays read from a file may be read-only.
            tensors = {name: torch.from_numpy(a.copy()) for name, a in model.tensors.items()}
            return State(facts, tensors)
        return None

    def _refuse_another_fit(self, found: dict[str, Any]) -> None:
        expected = json.loads(json.dumps(self.identity))
        for name in sorted({*found, *expected}):
            if found.get(name) != expected.get(name):
                raise ModelFileError(
                    f"checkpoint_dir={self.directory} holds the state of another fit: {name} was "
                    f"{found.get(name)} there and is {expected.get(name)} now; give an empty "
                    "directory, or that fit's settings and data."
                )


def shared(group: Group, found: State | None) -> State | None:
    """What the first process has read or found, given to all."""
    sent = [found]
    if group.size > 1:
        dist.broadcast_object_list(sent, 0)
    return sent[0]


def safe_points(directory: Any, group: Group) -> SafePoints:
    """Checkpoints in a directory, or none at all where there is no directory."""
    if directory is None:
        return SafePoints()
    return Checkpoints(directory, getattr(directory, "minutes", MINUTES), group)


def identity(params: Mapping[str, Any], source: Any, whole: int) -> dict[str, Any]:
    """What tells a fit from others: its settings and its data, as plain values.

    `source` holds the samples of this process, of which a few are looked at; there are `whole` in
    all processes.
    """
    plain = {name: _plain(value) for name, value in params.items() if name not in OF_THE_RUN}
    few = np.ascontiguousarray(source[: min(4, len(source))])
    return plain | {
        "form of its states": FORM,
        "samples": whole,
        "shape": list(source.shape),
        "dtype": source.dtype.name,
        "first samples": _digest(few),
    }


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | Tensor) and np.ndim(value):
        return _digest(np.asarray(value))
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return type(value).__name__


def generator_states(generator: torch.Generator, group: Group) -> Tensor:
    """The states of the processes' generators, shape (processes, bytes)."""
    return group.gather(generator.get_state()[None])


def restore_generator(generator: torch.Generator, states: Tensor, group: Group) -> None:
    """Put a generator where it was; one of a process that was not there then keeps its own seed."""
    if group.rank < len(states):
        generator.set_state(states[group.rank].clone())  # torch crashes on a row of a tensor
