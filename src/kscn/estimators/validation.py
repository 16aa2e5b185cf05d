"""Checks of what people pass to an estimator: arguments, samples, weights, starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names
from torch import Tensor

from kscn.data import Source, as_source
from kscn.errors import InputError
from kscn.subspaces import keep_nearest
from kscn.training.device import chosen
from kscn.training.distributed import Group, place

BLOCK = 256  # samples that are compared at once
STARTS = ("auto", "neighbours", "ensemble", "k-means", "neighbourhood", "farthest", "random")
DEEP_STARTS = ("k-subspaces", "neighbours", "ensemble", "k-means", "dsc")

device = chosen  # of all arguments, the one that names where to compute


def open_samples(estimator: Any, X: Any, reset: bool) -> Source:
    """X as a source, with scikit-learn's bookkeeping of feature names and their number."""
    name = type(estimator).__name__
    source = as_source(X)
    _check_feature_names(estimator, X, reset=reset)
    features = int(np.prod(source.shape))
    if reset:
        estimator.n_features_in_ = features
    elif features != estimator.n_features_in_:
        told = f"X has {features} features, but {name} is expecting {estimator.n_features_in_} "
        told += "features as input."
        if len(source.shape) > 1:
            fitted = getattr(estimator, "_input_shape", ())
            told += f" It has images of the shape {source.shape}"
            told += f", the fit had {fitted}" if len(fitted) > 1 else ""
            told += "; `kscn data resize` brings images to one size and mode."
        raise InputError(told)
    return source


def parameters(estimator: Any, n_samples: int) -> None:
    """Refuse impossible settings before any work is done."""
    k, d = estimator.n_clusters, estimator.n_features_in_
    _integer("n_clusters", k, 1)
    for name in ("n_init", "max_iter", "batch_size"):
        _integer(name, getattr(estimator, name), 1)
    _number("tol", estimator.tol, 0, np.inf)
    _number("trim", estimator.trim, 0, 0.5)
    if n_samples < k:
        raise InputError(
            f"n_samples={n_samples} should be >= n_clusters={k}; give more samples or ask for "
            "fewer clusters."
        )
    if d < 2:
        raise InputError(
            f"X has {d} feature(s), but a subspace needs at least 2 features to lie in."
        )
    if not isinstance(estimator.affine, (bool, np.bool_)):
        raise InputError(f"affine={estimator.affine!r} must be True or False.")
    _callbacks(estimator.callbacks)
    device(estimator.device)
    if isinstance(estimator.init, str) and estimator.init not in STARTS:
        raise InputError(
            f"init={estimator.init!r} is not known; use one of {', '.join(STARTS)}, or an array "
            "of labels or bases."
        )
    _subspace_dim(estimator.subspace_dim, k, d)


def deep_parameters(estimator: Any, n_samples: int) -> None:
    """Refuse impossible arguments of a deep estimator before any work is done."""
    k, init = estimator.n_clusters, estimator.init
    _integer("n_clusters", k, 1)
    _known("update", estimator.update, ("svd", "grassmann"))
    if n_samples < 2:
        raise InputError(
            f"n_samples={n_samples}: a network needs at least 2 samples to learn from."
        )
    if n_samples < k:
        raise InputError(
            f"n_samples={n_samples} should be >= n_clusters={k}; give more samples or ask for "
            "fewer clusters."
        )
    _callbacks(estimator.callbacks)
    device(estimator.device)
    if isinstance(init, str):
        return
    labels = np.asarray(init)
    whole = labels.dtype.kind in "biu"
    if labels.shape != (n_samples,) or not whole or labels.min() < 0 or labels.max() >= k:
        raise InputError(
            f"init as labels must hold {n_samples} integers from 0 to {k - 1}, one per sample; "
            f"got {labels.dtype} of shape {labels.shape}."
        )


def deep_settings(settings: Mapping[str, Any]) -> None:
    """Refuse impossible settings of a deep estimator, given or from a preset; "auto" is passed."""
    given = {name: v for name, v in settings.items() if not (isinstance(v, str) and v == "auto")}
    for name, least in {
        "n_init": 1,
        "batch_size": 1,
        "latent_dim": 2,
        "pretrain_epochs": 0,
        "epochs": 0,
        "update_every": 1,
    }.items():
        if name in given and (name != "update_every" or given[name] is not None):
            _integer(name, given[name], least)
    for name in ("weight", "tol", "balance", "learning_rate", "temperature"):
        if name not in given:
            continue
        _number(name, given[name], 0, np.inf)
        if name in ("learning_rate", "temperature") and given[name] == 0:
            raise InputError(f"{name}=0 must be above 0.")
    if "trim" in given:
        _number("trim", given["trim"], 0, 0.5)
    for name, known in {
        "loss": ("residual", "separation"),
        "latent": ("identity", "whitened"),
        "schedule": ("constant", "one-cycle"),
    }.items():
        if name in given:
            _known(name, given[name], known)
    init = given.get("init")
    if isinstance(init, str) and init not in DEEP_STARTS:
        raise InputError(
            f"init={init!r} is not known; use one of {', '.join(DEEP_STARTS)}, or an array of "
            "labels."
        )


def latent_dims(name: str, dims: Any, k: int, d: int) -> None:
    """Refuse subspaces that do not fit into the latent, which is known once there is a network."""
    try:
        _subspace_dim(dims, k, d)
    except InputError as error:
        told = str(error).replace("subspace_dim", name, 1)
        raise InputError(f"{told} (The latent has {d} dimensions.)") from None


def checkpoints(estimator: Any) -> None:
    """Refuse what cannot be a directory for checkpoints, or a time between them."""
    place = estimator.checkpoint_dir
    if place is not None and not isinstance(place, (str, os.PathLike)):
        raise InputError(f"checkpoint_dir={place!r} must be a path or None.")
    _number("checkpoint_minutes", estimator.checkpoint_minutes, 0, np.inf)


def _callbacks(callbacks: Any) -> None:
    if isinstance(callbacks, str) or not all(callable(one) for one in _listed(callbacks)):
        raise InputError("callbacks must be a sequence of functions, such as [print].")


def _listed(callbacks: Any) -> list[Any]:
    try:
        return list(callbacks)
    except TypeError:
        return [None]  # no sequence: refused like a sequence of no functions


def _subspace_dim(value: Any, k: int, d: int) -> None:
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


def _integer(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}={value!r} must be an integer of at least {least}.")


def _known(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name}={value!r} is not known; use {' or '.join(map(repr, known))}.")


def _number(name: str, value: Any, low: float, high: float) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not low <= float(value) < high:
        raise InputError(f"{name}={value!r} must be a number from {low} up to below {high}.")


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


def given_start(init: Any, n_samples: int, k: int, d: int, dims: Tensor) -> Tensor:
    """A start that the user gave: labels (n,) or bases (k, d, p)."""
    array = np.asarray(init)
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"init must be one of {', '.join(STARTS)}, or an array of labels or bases, "
            f"not {type(init).__name__}."
        )
    given = torch.as_tensor(array.copy())
    if given.ndim == 1:
        whole = not given.is_floating_point()
        if len(given) != n_samples or not whole or given.min() < 0 or given.max() >= k:
            raise InputError(
                f"init as labels must hold {n_samples} integers from 0 to {k - 1}, one per sample."
            )
        return given.long()
    p = int(dims.max())
    if given.shape != (k, d, p):
        raise InputError(
            f"init has shape {tuple(given.shape)}; labels have shape ({n_samples},) and bases "
            f"({k}, {d}, {p})."
        )
    if not given.isfinite().all():
        raise InputError("init holds NaN or infinity; bases must be finite.")
    return given


def trimmed(labels: Tensor, distance: Tensor, trim: float, k: int) -> Tensor:
    """Labels with -1 for the farthest share `trim` of each cluster."""
    labels = labels.long()
    if trim == 0:
        return labels
    return torch.where(keep_nearest(distance, labels, trim, k), labels, -1)


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


def plus_parameters(estimator: Any, n_samples: int, image: bool) -> None:
    """Refuse impossible settings of a `KSCNPlus` before any work is done."""
    k = estimator.n_clusters
    for name, least in {"n_clusters": 1, "starts": 1, "batch_size": 1}.items():
        _integer(name, getattr(estimator, name), least)
    if estimator.epochs != "auto":
        _integer("epochs", estimator.epochs, 1)
    refine = estimator.refine
    if not isinstance(refine, (bool, np.bool_)) and refine != "auto":
        raise InputError(f"refine={refine!r} must be True, False or 'auto'.")
    _number("balance", estimator.balance, 0, np.inf)
    for name in ("learning_rate", "temperature"):
        _number(name, getattr(estimator, name), 0, np.inf)
        if getattr(estimator, name) == 0:
            raise InputError(f"{name}=0 must be above 0.")
    _number("trim", estimator.trim, 0, 1)
    if estimator.refine is True and not image:
        raise InputError("refine=True needs images, (n, h, w) or (n, c, h, w); leave it at 'auto'.")
    if n_samples < max(k, 2):
        raise InputError(
            f"n_samples={n_samples} should be >= n_clusters={k} and at least 2; give more samples "
            "or ask for fewer clusters."
        )
    _callbacks(estimator.callbacks)
    device(estimator.device)
