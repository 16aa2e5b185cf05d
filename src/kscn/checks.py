"""Checks of what people pass to an estimator: arguments, samples, weights, starts."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from kscn.constraints import check_parameters
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
        images = f" They are of shape {source.shape}." if len(source.shape) > 1 else ""
        raise InputError(
            f"X has {features} features, but {name} is expecting {estimator.n_features_in_} "
            f"features as input.{images}"
        )
    return source


def parameters(estimator: Any, n_samples: int, least: int = 1) -> None:
    """Refuse impossible parameters, and too few samples, before any work is done."""
    check_parameters(estimator)
    callbacks(estimator.callbacks)
    device(estimator.device)
    k = estimator.n_clusters
    if n_samples < max(k, least):
        more = f" and at least {least}" if k < least else ""
        raise InputError(
            f"n_samples={n_samples} should be >= n_clusters={k}{more}; give more samples or ask "
            "for fewer clusters."
        )


def given_labels(init: Any, n_samples: int, k: int) -> None:
    """Refuse an array that is no start for so many samples in k clusters."""
    labels = np.asarray(init)
    whole = labels.dtype.kind in "biu"
    if labels.shape != (n_samples,) or not whole or labels.min() < 0 or labels.max() >= k:
        raise InputError(
            f"init as labels must hold {n_samples} integers from 0 to {k - 1}, one per sample; "
            f"got {labels.dtype} of shape {labels.shape}."
        )


def latent_dims(name: str, dims: Any, k: int, d: int) -> None:
    """Refuse subspaces that do not fit into the latent, which is known once there is a network."""
    try:
        subspace_dim(dims, k, d)
    except InputError as error:
        told = str(error).replace("subspace_dim", name, 1)
        raise InputError(f"{told} (The latent has {d} dimensions.)") from None


def callbacks(given: Any) -> None:
    """Refuse what is no sequence of functions."""
    try:
        listed = list(given)
    except TypeError:
        listed = [None]  # refused like a sequence of no functions
    if isinstance(given, str) or not all(callable(one) for one in listed):
        raise InputError("callbacks must be a sequence of functions, such as [print].")


def subspace_dim(value: Any, k: int, d: int) -> None:
    """Refuse dimensions that k subspaces of d features cannot have."""
    if isinstance(value, str):
        if value != "auto":
            raise InputError(
                f"subspace_dim={value!r} is not known; use 'auto', an int, or a list of ints."
            )
        return
    dims = np.atleast_1d(np.asarray(value))
    if dims.dtype.kind not in "iu" or dims.ndim != 1 or (np.ndim(value) and len(dims) != k):
        raise InputError(
            f"subspace_dim={value!r} must be 'auto', one int, or a list of n_clusters={k} ints."
        )
    if dims.min() < 1 or dims.max() >= d:
        raise InputError(
            f"subspace_dim={value!r} must be between 1 and {d - 1}: a subspace as large as the "
            f"{d} features holds every sample and separates nothing."
        )


def seed(random_state: Any) -> int:
    """An integer seed from whatever scikit-learn accepts as random_state."""
    if isinstance(random_state, Integral) and not isinstance(random_state, bool):
        if not 0 <= int(random_state) < 2**32:
            raise InputError(f"random_state={random_state} must be between 0 and 2**32 - 1.")
        return int(random_state)
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return int(check_random_state(random_state).randint(2**31 - 1))


def sample_weights(weights: Any, n_samples: int) -> Tensor | None:
    """Weights as a float64 tensor of shape (n,), or None for equal ones."""
    if weights is None:
        return None
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim == 0:
        array = np.full(n_samples, float(array))
    if array.shape != (n_samples,):
        raise InputError(f"sample_weight has shape {array.shape}, expected ({n_samples},).")
    if not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise InputError("sample_weight must be finite, not negative, and not all zero.")
    return torch.from_numpy(array.copy())


def unequal(source: Source, group: Group) -> None:
    """Refuse samples that are all the same; nearly always the first block shows that they differ.

    `source` is the part of this process.
    """
    own = source.take([0]) if len(source) else np.zeros((1, *source.shape))
    first = group.agree(torch.from_numpy(own.astype(np.float64))).numpy()
    if not group.any(any((block != first).any() for _, block in source.batches(BLOCK))):
        n = place(source)[1]
        raise InputError(
            f"All {n} samples of {source.name} are equal; there is nothing to cluster."
        )
