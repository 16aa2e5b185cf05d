"""One clustering from many: what the self-consistent ones among them have in common.

Every candidate describes a sample by the cluster it puts it into. k-means of these descriptions,
each candidate weighted by its self-consistency, finds the clustering that agrees best
with them (k-means-based consensus clustering). Mistakes that only one view makes are outvoted.
How much less a candidate weighs than the best depends on how surely it is worse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

# Standard errors below the best value at which a candidate has about a third of its weight, and
# within which two values say the same. Neighbours are not independent of each other, so these are
# more than the two of independent samples.
ERRORS = 3
# Weights below this share of the largest change nothing.
FAINT = 1e-3
STARTS = 5


def margin(best: float, n: int) -> float:
    """How far below the best self-consistency of n samples a value says the same."""
    return ERRORS * math.sqrt(max(best * (1 - best), 0.0) / n)


def consensus(
    candidates: Sequence[NDArray], values: Sequence[float], k: int, seed: int = 0
) -> NDArray:
    """Labels (n,) of k clusters that candidates of these self-consistencies agree on best."""
    best = max(values)
    width = max(margin(best, len(candidates[0])), 1e-9)
    share = np.exp((np.asarray(values) - best) / width)
    pieces = [
        np.sqrt(weight) * np.eye(k, dtype=np.float32)[labels]
        for labels, weight in zip(candidates, share, strict=True)
        if weight > FAINT
    ]
    described = np.concatenate(pieces, axis=1)
    return KMeans(k, n_init=STARTS, random_state=seed).fit_predict(described)
