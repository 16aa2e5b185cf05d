"""Samples from a union of random subspaces, the model that k-subspaces clustering assumes."""

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
    random_state: int | np.random.Generator | None = None,
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
    random_state : int, Generator or None
        The seed.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    samples, labels, bases : numpy.ndarray
        Samples (n_samples, ambient_dim) in random order, the subspace of each, -1 for outliers, and
        orthonormal bases (n_clusters, ambient_dim, max(subspace_dim)), padded with zero columns.

    Examples
    --------
    >>> from kscn import data
    >>> samples, labels, bases = data.make_union_of_subspaces(90, 3, 10, 2, random_state=0)
    >>> samples.shape, bases.shape
    ((90, 10), (3, 10, 2))
    """
    dtype = np.dtype(dtype)
    for name, value, possible, expected in (
        ("n_clusters", n_clusters, n_clusters >= 1, "it must be at least 1"),
        ("n_samples", n_samples, n_samples >= n_clusters, f"{n_clusters} clusters need as many"),
        ("noise", noise, 0 <= noise < np.inf, "give a standard deviation of at least 0"),
        ("outliers", outliers, 0 <= outliers < 1, "give a share of at least 0 and below 1"),
        ("dtype", dtype, dtype in (np.float32, np.float64), "use float32 or float64"),
    ):
        if not possible:
            raise InputError(f"{name} is {value}; {expected}.")
    dims = _dimensions(subspace_dim, n_clusters, ambient_dim - affine)
    rng = np.random.default_rng(random_state)
    samples, labels, bases = _draw(rng, n_samples, ambient_dim, dims, affine, dtype)
    if noise:
        samples += dtype.type(noise) * rng.standard_normal(samples.shape, dtype=dtype)
    if outliers:
        out = rng.choice(n_samples, size=round(outliers * n_samples), replace=False)
        labels[out] = -1
        inliers = samples[labels >= 0]
        radius = np.sqrt(np.einsum("ij,ij->", inliers, inliers, dtype=np.float64) / len(inliers))
        samples[out] = rng.uniform(-radius, radius, size=(len(out), ambient_dim))
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


def _dimensions(subspace_dim: Any, n_clusters: int, highest: int) -> list[int]:
    """The dimension of each subspace."""
    given = np.asarray(subspace_dim)
    whole = given.shape in ((), (n_clusters,)) and given.dtype.kind in "iu"
    if not whole or given.min() < 1 or given.max() > highest:
        raise InputError(
            f"subspace_dim is {subspace_dim}; give an integer from 1 to {highest}, or one for each "
            f"of {n_clusters} clusters."
        )
    return [int(dim) for dim in np.broadcast_to(given, n_clusters)]
