"""What a method with an n x n affinity will cost, said before any of it is made."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import torch

from kscn.errors import InputError

# One pass over a large matrix takes about as long as this many operations per entry in a product.
PASS = 50.0
# Side of the matrix product that measures the machine, a few milliseconds.
PROBE = 768


@dataclass(frozen=True)
class Cost:
    """Peak memory beyond the samples in bytes, and arithmetic in floating-point operations."""

    memory: float
    operations: float

    @property
    def seconds(self) -> float:
        """Rough time on this machine."""
        return self.operations / _operations_per_second()

    def __str__(self) -> str:
        return f"about {_bytes(self.memory)} of memory and roughly {_duration(self.seconds)}"


def check_affordable(method: str, n_samples: int, max_samples: int, cost: Cost) -> None:
    """Refuse more than `max_samples` samples, in words that name the cost and the way out."""
    if n_samples > max_samples:
        raise InputError(
            f"{method} of {n_samples:,} samples would need {cost}, which grow with the square of "
            f"the samples; it takes at most max_samples={max_samples:,}. Use KSubspaces or KSCN, "
            "which need no affinity, cluster a subset, or raise max_samples."
        )


@lru_cache(maxsize=1)
def _operations_per_second() -> float:
    a = torch.ones(PROBE, PROBE)
    taken = []
    for _ in range(4):  # the fastest: the first also starts threads, any may be interrupted
        began = time.perf_counter()
        a @ a
        taken.append(time.perf_counter() - began)
    return 2 * PROBE**3 / max(min(taken), 1e-6)


def _bytes(amount: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.1f} GB"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:,.0f} hours"
