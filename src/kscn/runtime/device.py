"""The device that a fit runs on: chosen once, here, and handed inward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kscn.errors import InputError

CPU = torch.device("cpu")


def chosen(name: str) -> torch.device:
    """The torch device called `name`, with its number; "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise InputError(f"device={name!r} cannot be used here; 'cpu' always can.") from error


def placed(module: nn.Module, device: torch.device) -> nn.Module:
    """A network on the device; the order of channels that suits a CPU stays there."""
    if device.type == "cpu":
        return module.to(device)
    plain = torch.contiguous_format
    return module.to(device, memory_format=plain)  # type: ignore[call-overload]


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Layers draw from torch's own generators: seeded while the context is open, then as before."""
    with torch.random.fork_rng(devices=_numbers(device), device_type=_kind(device)):
        torch.manual_seed(seed)
        yield


def generator_state(device: torch.device) -> Tensor | None:
    """The state of the device's own generator, from which dropout draws there; None on the CPU."""
    return None if device.type == "cpu" else _module(device).get_rng_state(device)


def set_generator_state(state: Tensor, device: torch.device) -> None:
    """Put the device's own generator where it was."""
    if device.type != "cpu":
        _module(device).set_rng_state(state, device)


def _module(device: torch.device) -> Any:
    return torch.get_device_module(device)


def _numbers(device: torch.device) -> list[int]:
    return [] if device.type == "cpu" else [device.index or 0]


def _kind(device: torch.device) -> str:
    return "cuda" if device.type == "cpu" else device.type
