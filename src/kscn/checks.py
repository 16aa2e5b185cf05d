"""Checks of arguments that meet the data only in the middle of a fit."""

from typing import Any

import numpy as np

from kscn.errors import InputError


def given_labels(init: Any, n_samples: int, k: int) -> None:
    """Refuse an array that is no start for so many samples in k clusters."""
    labels = np.asarray(init)
    one_each = labels.shape == (n_samples,) and labels.dtype.kind in "biu"
    if not one_each or labels.min() < 0 or labels.max() >= k:
        raise InputError(
            f"init as labels must hold {n_samples} integers from 0 to {k - 1}, one per sample; "
            f"got {labels.dtype} of shape {labels.shape}."
        )


def subspace_dim(value: Any, k: int, d: int, name: str = "subspace_dim") -> None:
    """Refuse dimensions that k subspaces of d features cannot have; `name` is the argument's."""
    if isinstance(value, str) and value == "auto":
        return
    dims = np.atleast_1d(np.asarray(value))
    if dims.dtype.kind not in "iu" or dims.ndim != 1 or (np.ndim(value) and len(dims) != k):
        raise InputError(
            f"{name}={value!r} must be 'auto', one int, or a list of n_clusters={k} ints."
        )
    if dims.min() < 1 or dims.max() >= d:
        raise InputError(
            f"{name}={value!r} must be between 1 and {d - 1}: a subspace as large as the space of "
            f"{d} dimensions that it lies in holds every sample and separates nothing."
        )
