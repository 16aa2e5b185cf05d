"""Samples from a union of random subspaces, the model that k-subspaces clustering assumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kscn.errors import InputError


def make_union_of_subspaces(
    n_samples: int,
    n_clusters: int,
    ambient_dim: int,
    subspace_dim: int | Sequence[int],
    *,
    noise: float = 0.0,
    outliers: float = 0.0,
    affine: bool = False,
    missing: float = 0.0,
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    dtype: Any = np.float32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw samples near k random subspaces: x = S_i c (+ offset_i) + noise, c standard normal.

    Parameters
    ----------
    n_samples, n_clusters, ambient_dim : int
        Number of samples, of subspaces, and of coordinates. Cluster sizes differ by at most one.
    subspace_dim : int or sequence of int
        Dimension of the subspaces, or of each of them.
    noise : float
        Standard deviation of the normal noise on every ambient coordinate.
    outliers : float
        Share of the samples replaced by points uniform in the cube [-r, r]^ambient_dim, where r is
        the root mean square norm of the other samples.
    affine : bool
        Shift each subspace by a random offset orthogonal to it, of norm sqrt(subspace_dim).
    missing : float
        Share of the entries set to NaN, each independently of the others.
    random_state : int, Generator, RandomState or None
        The seed.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    samples : numpy.ndarray of shape (n_samples, ambient_dim)
        In random order.
    labels : numpy.ndarray of shape (n_samples,)
        The subspace of each sample, -1 for outliers.
    bases : numpy.ndarray of shape (n_clusters, ambient_dim, max(subspace_dim))
        Orthonormal columns; a subspace of smaller dimension is padded with zero columns.
    """
    dims = _check(n_samples, n_clusters, ambient_dim, subspace_dim, affine)
    dtype = np.dtype(dtype)
    _check_spoiling(noise, outliers, missing, dtype)
    rng = _generator(random_state)
    samples, labels, bases = _draw(rng, n_samples, ambient_dim, dims, affine, dtype)
    if noise:
        samples += dtype.type(noise) * rng.standard_normal(samples.shape, dtype=dtype)
    if outliers:
        out = rng.choice(n_samples, size=round(outliers * n_samples), replace=False)
        labels[out] = -1
        inliers = samples[labels >= 0]
        radius = np.sqrt(np.einsum("ij,ij->", inliers, inliers, dtype=np.float64) / len(inliers))
        samples[out] = rng.uniform(-radius, radius, size=(len(out), ambient_dim))
    if missing:
        samples[rng.random(samples.shape, dtype=np.float32) < missing] = np.nan
    return samples, labels, bases.astype(dtype)


def _draw(
    rng: np.random.Generator, n: int, d: int, dims: list[int], affine: bool, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples on the subspaces themselves, their labels, and the bases."""
    bases = np.zeros((len(dims), d, max(dims)))
    labels = rng.permutation(np.arange(n) % len(dims))
    samples = np.empty((n, d), dtype=dtype)
    for cluster, dim in enumerate(dims):
        # One more direction, orthogonal to the subspace, carries the offset.
        frame, _ = np.linalg.qr(rng.standard_normal((d, dim + affine)))
        bases[cluster, :, :dim] = frame[:, :dim]
        rows = np.flatnonzero(labels == cluster)
        points = rng.standard_normal((len(rows), dim)) @ frame[:, :dim].T  # (m, d)
        samples[rows] = points + np.sqrt(dim) * frame[:, dim] if affine else points
    return samples, labels, bases


def _check(
    n_samples: int, n_clusters: int, ambient_dim: int, subspace_dim: Any, affine: bool
) -> list[int]:
    """The dimension of each subspace, once all the sizes fit together."""
    if n_clusters < 1:
        raise InputError(f"n_clusters is {n_clusters}; it must be at least 1.")
    if n_samples < n_clusters:
        raise InputError(
            f"n_samples is {n_samples}, fewer than n_clusters = {n_clusters}; draw more samples."
        )
    given = np.asarray(subspace_dim)
    if given.ndim == 1 and len(given) != n_clusters:
        raise InputError(
            f"subspace_dim has {len(given)} entries for {n_clusters} clusters; give one for each."
        )
    if given.ndim > 1 or given.dtype.kind not in "iu":
        raise InputError("subspace_dim must be an integer or a list of integers, one per cluster.")
    dims: list[int] = np.broadcast_to(given, n_clusters).tolist()
    highest = ambient_dim - affine
    if min(dims) < 1 or max(dims) > highest:
        raise InputError(
            f"subspace_dim is {subspace_dim}; with ambient_dim = {ambient_dim} it must lie between "
            f"1 and {highest}."
        )
    return dims


def _check_spoiling(noise: float, outliers: float, missing: float, dtype: np.dtype) -> None:
    for name, value in (("outliers", outliers), ("missing", missing)):
        if not 0 <= value < 1:
            raise InputError(f"{name} is {value}; give a share of at least 0 and below 1.")
    if not 0 <= noise < np.inf:
        raise InputError(f"noise is {noise}; give a standard deviation of at least 0.")
    if dtype not in (np.float32, np.float64):
        raise InputError(f"dtype is {dtype}; use float32 or float64.")


def _generator(random_state: Any) -> np.random.Generator:
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)
