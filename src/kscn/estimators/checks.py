"""Checks of what people pass to an estimator: arguments, samples, weights."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from kscn.constraints import Integer, check_parameters, check_value
from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.runtime.device import chosen
from kscn.runtime.group import Group, place

BLOCK = 256  # samples that are compared at once

device = chosen  # of all arguments, the one that names where to compute


def new_samples(X: Any, group: Group) -> tuple[Source, dict[str, Any]]:
    """The samples of this process for a new fit, and what scikit-learn keeps of them.

    That are the number and names of features, which a fit sets when it has succeeded.
    """
    source = as_source(X)
    if len(source.shape) > 3:
        raise InputError(
            f"{source.name} holds samples of shape {source.shape}; give vectors (n, d) or images "
            "(n, h, w) or (n, c, h, w), or flatten what is neither by reshape(len(X), -1)."
        )
    seen = BaseEstimator()
    validate_data(seen, X, reset=True, skip_check_array=True, ensure_2d=False)
    about = {**vars(seen), "n_features_in_": int(np.prod(source.shape))}
    return group.part(source), about


def known_samples(estimator: Any, X: Any) -> Source:
    """Samples for a fitted estimator, with the features that it was fitted with."""
    name = type(estimator).__name__
    source = as_source(X)
    # Names only: samples may have any shape, and be read from a file.
    validate_data(estimator, X, reset=False, skip_check_array=True, ensure_2d=False)
    features = int(np.prod(source.shape))
    if features != estimator.n_features_in_:
        raise InputError(
            f"X has {features} features, but {name} is expecting {estimator.n_features_in_} "
            f"features as input; samples are of shape {source.shape}."
        )
    return source


def parameters(estimator: Any, n_samples: int, least: int = 1) -> None:
    """Refuse impossible parameters, and too few samples, before any work is done."""
    check_parameters(estimator)
    device(estimator.device)
    k = estimator.n_clusters
    if n_samples < max(k, least):
        more = f" and at least {least}" if k < least else ""
        raise InputError(
            f"n_samples={n_samples} should be >= n_clusters={k}{more}; give more samples or ask "
            "for fewer clusters."
        )


def seed(random_state: Any) -> int:
    """An integer seed from whatever scikit-learn accepts as random_state."""
    if isinstance(random_state, Integral):
        check_value("random_state", random_state, [Integer(0, 2**32)])
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def sample_weights(weights: Any, n_samples: int) -> Tensor | None:
    """Weights as a float64 tensor of shape (n,), or None for equal ones."""
    if weights is None:
        return None
    array = np.asarray(weights, dtype=np.float64)
    fine = np.isfinite(array).all() and (array >= 0).all() and array.any()
    if array.shape != (n_samples,) or not fine:
        raise InputError(
            f"sample_weight must be {n_samples} finite numbers, not negative and not all zero; "
            f"got the shape {array.shape}, from {array.min(initial=0)} to {array.max(initial=0)}."
        )
    return torch.from_numpy(array.copy())


def unequal(source: Source, group: Group) -> None:
    """Refuse samples that are all the same; nearly always the first block shows that they differ.

    `source` is the part of this process.
    """
    first = group.agree(torch.from_numpy(source.take([0]).astype(np.float64))).numpy()
    if not group.any(any((block != first).any() for _, block in source.batches(BLOCK))):
        n = place(source)[1]
        raise InputError(
            f"All {n} samples of {source.name} are equal; there is nothing to cluster."
        )
