"""Spectral clustering of a sparse graph: its smoothest coordinates, and k-means in them."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from sklearn.cluster import KMeans

# Everyone is linked to everyone by so much of the mean degree: parts of the graph that are not
# connected are then told apart by smooth coordinates instead of by an arbitrary basis of them.
EVERYWHERE = 0.01
TOLERANCE = 1e-4  # coordinates need no more digits than k-means sees
STARTS = 4  # of the final k-means
# Where the vectors so far span all that the matrix maps to, ARPACK draws a new direction: since
# SciPy 1.17 from a generator that can be given, before from one with a fixed seed.
TAKES_GENERATOR = "rng" in signature(eigsh).parameters


def spectral_embedding(
    graph: sparse.csr_array, count: int, seed: int = 0
) -> tuple[NDArray, NDArray]:
    """The `count` smoothest coordinates of a graph: eigenvalues (falling) and vectors (n, count).

    These are the leading eigenvectors of D^-1/2 (A + e 11^T) D^-1/2, with signs such that the
    entry of largest size is positive.
    """
    n = graph.shape[0]
    degree = np.asarray(graph.sum(axis=1)).ravel()
    link = EVERYWHERE * degree.mean()
    scale = 1 / np.sqrt(degree + link)
    weighted = sparse.diags_array(scale) @ graph @ sparse.diags_array(scale)

    def times(vector: NDArray) -> NDArray:
        vector = vector.ravel()
        return weighted @ vector + scale * (link / n * (scale @ vector))

    count = min(count, n - 1)
    values, vectors = _leading(LinearOperator((n, n), times, dtype=np.float64), count, seed)
    order = np.argsort(-values, kind="stable")
    values, vectors = values[order], vectors[:, order]
    peak = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.where(vectors[peak, np.arange(count)] < 0, -1.0, 1.0)


def _leading(operator: LinearOperator, count: int, seed: int) -> tuple[NDArray, NDArray]:
    n = operator.shape[0]
    if n > 3 * count + 20:
        start = np.random.default_rng(seed).normal(size=n)
        try:
            return seeded_eigsh(
                operator, count, seed, v0=start, tol=TOLERANCE, ncv=max(20, 2 * count + 1)
            )
        except ArpackError:  # a start within an invariant subspace; rare, and small graphs only
            pass
    values, vectors = np.linalg.eigh(operator @ np.eye(n))
    return values[-count:], vectors[:, -count:]


def seeded_eigsh(
    operator: LinearOperator, count: int, seed: int, which: str = "LA", **settings: Any
) -> tuple[NDArray, NDArray]:
    """`scipy.sparse.linalg.eigsh` with nothing left to chance: rising eigenvalues, and vectors."""
    if TAKES_GENERATOR:
        settings["rng"] = np.random.default_rng(seed)
    return eigsh(operator, count, which=which, **settings)


def spectral_clusters(vectors: NDArray, k: int, seed: int = 0) -> NDArray:
    """k clusters of the rows of an embedding (n, m), which are brought to unit length first."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = vectors / np.where(length > 0, length, 1.0)
    return KMeans(k, n_init=STARTS, random_state=seed).fit_predict(rows)


def graph_clusters(graph: sparse.csr_array, k: int, seed: int = 0) -> NDArray:
    """k clusters (n,) of the nodes of a graph."""
    return spectral_clusters(spectral_embedding(graph, k, seed)[1], k, seed)
