"""The device that a fit runs on, chosen once and handed inward, and the memory of a CPU."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from kscn.errors import InputError

CPU = torch.device("cpu")
_MIB = 2**20
# Options of glibc's mallopt, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD: what its own adjustment reaches
# at the most, and what `kept_memory` sets: larger than any block of a step, but not than the
# latents of millions of samples.
_MALLOPT = {-3: (32 * _MIB, 256 * _MIB), -1: (64 * _MIB, 512 * _MIB)}


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
    on_cpu = device.type == "cpu"
    numbers, kind = ([], "cuda") if on_cpu else ([device.index or 0], device.type)
    with torch.random.fork_rng(devices=numbers, device_type=kind):
        # On the CPU not torch.manual_seed: it seeds other devices as well, which would stay seeded.
        (torch.default_generator.manual_seed if on_cpu else torch.manual_seed)(seed)
        yield


@contextmanager
def kept_memory(device: torch.device = CPU) -> Iterator[None]:
    """Let glibc keep freed blocks on the CPU while the context is open; elsewhere does nothing.

    A training step frees and allocates tens of megabytes. By default glibc returns such blocks to
    the system, which hands out zeroed pages again, one fault each: a third of the time of a step.
    """
    on_cpu = sys.platform == "linux" and device.type == "cpu"
    lib = ctypes.CDLL(None) if on_cpu else None
    mallopt = getattr(lib, "mallopt", None)
    if mallopt is None:
        yield
        return
    for option, (_, kept) in _MALLOPT.items():
        mallopt(option, kept)
    try:
        yield
    finally:
        for option, (usual, _) in _MALLOPT.items():
            mallopt(option, usual)
