"""A flat map of points: t-SNE where openTSNE is installed, else the two main directions."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Noise in hundreds of directions drowns neighbourhoods, and finding them costs time.
_REDUCED = 50
# Fewer points than this have too few neighbours for a perplexity that says anything.
_LEAST = 30
# Half of openTSNE's default rounds: the map of a report need not be polished to the last digit.
_ROUNDS = {"early_exaggeration_iter": 125, "n_iter": 250}


def flatten(points: NDArray, *, threads: int = 1) -> tuple[NDArray, str]:
    """Lay out points (n, d) in the plane: `framed` places (n, 2), and "t-SNE" or "PCA"."""
    points = _reduced(np.asarray(points, dtype=np.float64))
    module = _tsne()
    if module is None or len(points) < _LEAST or not points.any():
        return framed(points[:, :2]), "PCA"
    # The first direction spread to 1e-4, as t-SNE wants its start.
    start = points[:, :2] / max(float(points[:, 0].std()), 1e-300) * 1e-4
    made = module.TSNE(
        perplexity=min(30, (len(points) - 1) / 3),
        initialization=start,
        n_jobs=threads,
        random_state=0,
        **_ROUNDS,
    )
    return framed(np.asarray(made.fit(points))), "t-SNE"


def _tsne() -> Any:
    try:
        return import_module("openTSNE")
    except ImportError:
        return None


def _reduced(points: NDArray) -> NDArray:
    """At least two and at most 50 principal components; missing ones are zero."""
    from sklearn.decomposition import PCA

    points = points - points.mean(axis=0)
    if not points.any():
        return np.zeros((len(points), 2))
    count = min(*points.shape, _REDUCED)
    made: NDArray = PCA(count, random_state=0).fit_transform(points)
    return np.pad(made, ((0, 0), (0, max(0, 2 - count))))


def framed(places: NDArray) -> NDArray:
    """Places between -1 and 1, on the same scale in both directions."""
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    reach = float(np.abs(places - middle).max())
    return (places - middle) / (reach if reach > 0 else 1.0)
