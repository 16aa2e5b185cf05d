"""A direction shown by members that lie along it, where no decoder can draw it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Share of the members at either end whose means are compared.
_END = 0.1
# Members shown: so many of either end, and one between them.
_FARTHEST = 2


@dataclass(frozen=True)
class Along:
    """What was found along one direction.

    Attributes
    ----------
    members : ndarray of shape (m,)
        Rows of the members farthest one way, of a middle one, and of those farthest the other way;
        at most five, ascending along the direction.
    change : ndarray of shape (*shape)
        Mean of the samples at the upper end less that of those at the lower end.
    """

    members: NDArray
    change: NDArray


def along(places: NDArray, samples: NDArray) -> Along:
    """Members that show what a direction means.

    Parameters
    ----------
    places : ndarray of shape (n,)
        How far the members are along the direction; 0 is their mean.
    samples : ndarray of shape (n, *shape)
        The members themselves.
    """
    order = np.argsort(places, kind="stable")
    middle = order[[np.abs(places[order]).argmin()]]
    shown = np.unique(np.concatenate([order[:_FARTHEST], middle, order[-_FARTHEST:]]))
    end = max(1, int(_END * len(order)))
    low, high = (
        samples[rows].mean(axis=0, dtype=np.float64) for rows in (order[:end], order[-end:])
    )
    return Along(shown[np.argsort(places[shown], kind="stable")], high - low)
