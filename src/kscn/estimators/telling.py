"""What a fit tells while it goes on and at its end: records, callbacks, empty clusters."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning


class Telling:
    """An estimator with a history and callbacks; a fit sets `history_` and `_began` first."""

    callbacks: Iterable[Callable[[Any, dict[str, Any]], object]]
    history_: list[dict[str, Any]]
    _began: float

    def _record(self, record: dict[str, Any]) -> bool:
        """Put a record into the history and tell the callbacks; whether one asks to stop."""
        record["seconds"] = time.perf_counter() - self._began
        self.history_.append(record)
        stop = False
        for callback in self.callbacks:  # every one is called, also after one asked to stop
            stop |= callback(self, record) is True
        return stop


def warn_of_empty(labels: NDArray, n_clusters: int, stacklevel: int) -> None:
    """Warn if some clusters have no members; `stacklevel` is that of a warning of the caller."""
    missing = n_clusters - len(np.unique(labels))
    if missing:
        warnings.warn(
            f"{missing} of the {n_clusters} clusters ended up empty; the data may hold fewer "
            "distinct groups than n_clusters.",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )
