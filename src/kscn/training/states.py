"""The states of a fit on disk, so that a kill, a full disk or a power cut costs little of it.

A state is a model directory (safetensors and JSON with checksums), complete or not there at all.
The last two are kept, so that one damaged later is no loss.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kscn.atomicfile import remove_directory
from kscn.data import Source
from kscn.errors import ModelFileError
from kscn.modelfile import read_model, write_model
from kscn.nn.network import part

KIND = "Checkpoint"
KEPT = 2
# Parameters that say how and where to fit, and do not change what is found.
OF_THE_RUN = {"callbacks", "checkpoint_dir", "device"}


class CheckpointWarning(UserWarning):
    """A state could not be read or written, and the fit goes on without it."""


@dataclass
class State:
    """What a fit goes on from: facts that fit into JSON, and tensors on the CPU."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def put(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Take in tensors under `name.`."""
        for key, tensor in tensors.items():
            self.tensors[f"{name}.{key}"] = torch.as_tensor(tensor).detach().cpu()

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors under `name.`, without that prefix."""
        return part(self.tensors, name)


class States:
    """The states of one fit in a directory, which is made if missing.

    Parameters
    ----------
    directory : path
        Where.
    identity : mapping
        What tells this fit from others, as plain values; the states of another one are refused.
    """

    def __init__(self, directory: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.directory = Path(directory)
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))
        self.number = 0

    def write(self, state: State) -> None:
        """Write a state and delete all but the last ones.

        A full disk is no reason to lose the fit itself: there may be room again at its end.
        """
        facts = {"identity": self.identity, "facts": state.facts}
        try:
            write_model(self._path(self.number + 1), KIND, facts, state.tensors)
        except ModelFileError as error:
            warnings.warn(f"no checkpoint: {error}", CheckpointWarning, stacklevel=2)
            return
        self.number += 1
        for number in self._numbers()[:-KEPT]:
            remove_directory(self._path(number))

    def newest(self) -> State | None:
        """The newest state that can be read; None where there is none."""
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
            return State(
                facts, {name: torch.from_numpy(a.copy()) for name, a in model.tensors.items()}
            )
        return None

    def _path(self, number: int) -> Path:
        return self.directory / f"state-{number:06}"

    def _numbers(self) -> list[int]:
        """The numbers of the states that are there, ascending."""
        names = (re.fullmatch(r"state-(\d+)", entry.name) for entry in self.directory.iterdir())
        return sorted(int(name[1]) for name in names if name)

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
    few = np.ascontiguousarray(source[: min(4, len(source))])
    return {name: _plain(value) for name, value in params.items() if name not in OF_THE_RUN} | {
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
