"""The device that a fit runs on, chosen once and handed inward, and the memory of a CPU."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from kscn.errors import InputError

CPU = torch.device("cpu")
# M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's mallopt: larger than any block of a training
# step, but not than the latents of millions of samples.
MALLOPT = {-3: 256 * 2**20, -1: 512 * 2**20}


def chosen(name: str) -> torch.device:
    """The torch device called `name`, with its number; "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise InputError(f"device={name!r} cannot be used here; 'cpu' always can.") from error


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Layers draw from torch's own generators: seeded while the context is open, then as before."""
    on_cpu = device.type == "cpu"
    numbers, kind = ([], "cuda") if on_cpu else ([device.index or 0], device.type)
    with torch.random.fork_rng(devices=numbers, device_type=kind):
        # On the CPU not torch.manual_seed: it seeds other devices as well, which would stay seeded.
        (torch.default_generator.manual_seed if on_cpu else torch.manual_seed)(seed)
        yield


@cache
def keep_memory() -> None:
    """Let glibc keep freed blocks for the next ones, from now on.

    A training step frees and allocates tens of megabytes. By default glibc returns such blocks to
    the system, which hands out zeroed pages again, one fault each: a third of the time of a step.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: None)  # musl has none
        for option, size in MALLOPT.items():
            mallopt(option, size)
