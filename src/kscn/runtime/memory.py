"""Memory that a loop frees and asks for again, kept in the process meanwhile."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kscn.runtime.device import CPU

# Options of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MIB = 2**20
# What glibc's own adjustment reaches at the most.
_USUAL = {_MMAP_THRESHOLD: 32 * _MIB, _TRIM_THRESHOLD: 64 * _MIB}
# Larger than any block of a step, but not than the latents of millions of samples.
_KEPT = {_MMAP_THRESHOLD: 256 * _MIB, _TRIM_THRESHOLD: 512 * _MIB}


@contextmanager
def kept_memory(device: torch.device = CPU) -> Iterator[None]:
    """Let glibc keep freed blocks while the context is open; elsewhere nothing happens.

    Nor does anything where the blocks are on another device than the CPU.

    A training step frees and allocates tens of megabytes. By default glibc returns such blocks to
    the system, which hands out zeroed pages again, one fault each: a third of the time of a step.
    """
    on_cpu = sys.platform == "linux" and device.type == "cpu"
    lib = ctypes.CDLL(None) if on_cpu else None
    mallopt = getattr(lib, "mallopt", None)
    if mallopt is None:
        yield
        return
    for option, value in _KEPT.items():
        mallopt(option, value)
    try:
        yield
    finally:
        for option, value in _USUAL.items():
            mallopt(option, value)
