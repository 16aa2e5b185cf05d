"""One clustering from many: what the self-consistent ones among them have in common.

Every candidate describes a sample by the cluster it puts it into. k-means of these descriptions,
each candidate weighted by a power of its self-consistency, finds the clustering that agrees best
with them (k-means-based consensus clustering). Mistakes that only one view makes are outvoted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

# A candidate of 0.95 times the best value has about a third of its weight.
POWER = 20
# Weights below this share of the largest change nothing.
FAINT = 1e-3
STARTS = 5


def consensus(
    candidates: Sequence[NDArray], values: Sequence[float], k: int, seed: int = 0
) -> NDArray:
    """Labels (n,) of k clusters that candidates of these self-consistencies agree on best."""
    share = (np.asarray(values) / max(values)) ** POWER
    pieces = [
        np.sqrt(weight) * np.eye(k, dtype=np.float32)[labels]
        for labels, weight in zip(candidates, share, strict=True)
        if weight > FAINT
    ]
    described = np.concatenate(pieces, axis=1)
    return KMeans(k, n_init=STARTS, random_state=seed).fit_predict(described)
