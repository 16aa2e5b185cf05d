"""Clustering by an affinity between all pairs of samples, mostly of codes by each other.

Codes become an affinity; normalised spectral clustering takes the leading k eigenvectors of
D^-1/2 W D^-1/2, rows brought to unit norm, then k-means. Only products with W are needed, so a
sparse affinity stays sparse and a dense one is never copied.
"""

import itertools
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, lobpcg
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.constraints import Integer, parameter
from kscn.data import Source
from kscn.errors import InputError
from kscn.estimators import checks as check
from kscn.neighbours.spectral import seeded_eigsh
from kscn_paper.rivals.base import Rival, all_samples

DSC_DIM = 9  # of the subspaces of DSC-Net
SMALL = 600  # up to this size a full eigendecomposition is quick and always converges
STARTS = 20  # of the final k-means
BLOCK = 512  # rows of a dense affinity that are worked on together


@dataclass(eq=False, repr=False, kw_only=True)
class AffinityRival(Rival):
    """A method that clusters by an affinity between all pairs of samples.

    There is no `predict`: an affinity says nothing about samples that it was not made of.

    Parameters
    ----------
    max_samples : int, default=12000
        More samples are refused: time and mostly memory grow with their square.

    Attributes
    ----------
    affinity_ : ndarray or scipy.sparse.csr_array of shape (n, n)
        Symmetric; near zero for samples of different clusters.
    """

    max_samples: int = parameter(12_000, Integer(1))

    @abstractmethod
    def _make_affinity(self, source: Source) -> Any:
        """The affinity (n, n) of all samples, as a numpy array or a scipy sparse one."""

    def _fit(self, source: Source) -> None:
        self.affinity_ = self._make_affinity(source)
        self._record("spectral")
        self.labels_ = spectral_labels(self.affinity_, self.n_clusters, self.random_state_)

    def _check(self, n_samples: int) -> None:
        super()._check(n_samples)
        if n_samples > self.max_samples:
            raise InputError(
                f"{type(self).__name__} takes at most max_samples={self.max_samples:,} samples and "
                f"got {n_samples:,}: an affinity of so many has {n_samples**2 * 8e-9:,.1f} GB in "
                "float64, and time grows with the square too. Use KSubspaces or KSCN, which need "
                "none, cluster a subset, or raise max_samples."
            )

    def _samples(self, source: Source) -> Tensor:
        return all_samples(source, check.device(self.device))


def dsc_start(latents: Tensor, n_clusters: int, random_state: int) -> NDArray:
    """Clusters of latents (n, d), as DSC-Net finds them once its network is trained.

    A start of `KSCN(init=dsc_start)`. Takes n^2 d operations for codes in closed form, and an n x n
    matrix: for a few thousand. Clusters are numbered by falling size.
    """
    latents = latents.detach().cpu()
    if not latents.isfinite().all():
        raise InputError("latents contain NaN or infinity; lower the network's learning rate.")
    codes = ridge_codes(latents, ridge=mean_energy(latents))
    affinity = code_affinity(
        codes, n_clusters * DSC_DIM + 1, keep=0.4, power=8.0, seed=random_state
    )
    return spectral_labels(affinity, n_clusters, random_state)


def mean_energy(latents: Tensor) -> float:
    """Mean square of the singular values of latents (n, d)."""
    return float(latents.square().sum()) / min(latents.shape)


def ridge_codes(latents: Tensor, ridge: float) -> Tensor:
    """C (n, n) that minimises |Z - C Z|^2 + ridge |C|^2 with a zero diagonal.

    With H = Z (Z^T Z + ridge)^-1 Z^T, row i is H_ij / (1 - H_ii): ridge regression with sample i
    left out, all n of them at once.
    """
    left, s, _ = torch.linalg.svd(latents, full_matrices=False)
    energy = s.square()
    floor = torch.finfo(energy.dtype).tiny
    hat = (left * (energy / (energy + ridge).clamp(min=floor))) @ left.mT
    rest = (1 - hat.diagonal()).clamp(min=torch.finfo(energy.dtype).eps)
    return hat.div_(rest[:, None]).fill_diagonal_(0)


# Affinities from codes ---------------------------------------------------------------------------


def code_affinity(codes: Tensor, rank: int, keep: float, power: float, seed: int) -> NDArray:
    """Affinity (n, n) of codes, which are overwritten.

    The largest entries of each row that hold the share `keep` of its l1 norm, symmetrised; of that
    the best approximation U s V^T of the given rank; then max(0, cosine)^power of the rows of
    U sqrt(s).
    """
    codes = keep_largest_dense(codes, keep)
    codes = (codes + codes.mT).div_(2)
    return angular_affinity(symmetric_factors(codes, rank, seed), power)


def keep_largest(codes: sparse.csr_array, share: float) -> sparse.csr_array:
    """Per row the largest |codes| that together hold `share` of its l1 norm, the others dropped."""
    codes = sparse.csr_array(codes, copy=True)
    for begin, end in itertools.pairwise(codes.indptr if share < 1 else ()):
        size = np.abs(codes.data[begin:end]).astype(np.float64)
        order = np.argsort(-size, kind="stable")
        held = np.cumsum(size[order])
        # An entry is wanted as long as those before it have not reached the share.
        dropped = order[held - size[order] >= share * held[-1:]]
        codes.data[begin + dropped] = 0
    codes.eliminate_zeros()
    return codes


def symmetric_affinity(codes: sparse.csr_array) -> sparse.csr_array:
    """|C| + |C|^T, after each row was divided by its largest entry: every sample counts alike."""
    codes = abs(sparse.csr_array(codes))
    largest = codes.max(axis=1).toarray().reshape(-1)
    scale = sparse.diags_array(1 / np.where(largest > 0, largest, 1))
    codes = scale @ codes
    return sparse.csr_array(codes + codes.T)


def keep_largest_dense(codes: Tensor, share: float) -> Tensor:
    """As `keep_largest`, for dense codes (n, n), overwritten a block of rows at a time."""
    for rows in codes.split(BLOCK):
        ranked, order = rows.abs().sort(dim=1, descending=True)
        held = ranked.cumsum(dim=1)
        # An entry is dropped when those before it hold the share already.
        ranked = (held - ranked >= share * held[:, -1:]).to(rows.dtype)
        rows.mul_(1 - torch.empty_like(ranked).scatter_(1, order, ranked))
    return codes


def angular_affinity(factors: Tensor, power: float) -> NDArray:
    """max(0, cosine)^power between the rows of `factors` (n, r): a dense (n, n) affinity."""
    rows = torch.nn.functional.normalize(factors.cpu(), dim=1)
    out = torch.empty(len(rows), len(rows), dtype=rows.dtype)
    for begin in range(0, len(rows), BLOCK):
        part = out[begin : begin + BLOCK]
        torch.mm(rows[begin : begin + BLOCK], rows.mT, out=part)
        part.clamp_(min=0).pow_(power)
    return out.numpy()


# Labels from affinities --------------------------------------------------------------------------


def spectral_labels(affinity: Any, n_clusters: int, seed: int) -> NDArray:
    """Labels by a symmetric affinity (n, n), dense or sparse, numbered by falling size."""
    embedding = leading_eigenvectors(affinity, n_clusters, seed)
    norms = np.linalg.norm(embedding, axis=1, keepdims=True)
    embedding = embedding / np.where(norms > 0, norms, 1)
    found = KMeans(n_clusters, n_init=STARTS, random_state=seed).fit(embedding).labels_
    # Numbered by falling size, ties by their first sample.
    _, first, own, sizes = np.unique(found, True, True, True)
    return np.argsort(np.lexsort((first, -sizes)))[own].astype(np.int32)


def leading_eigenvectors(
    affinity: Any, n_components: int, seed: int, small: int = SMALL
) -> NDArray:
    """The leading eigenvectors of the normalised affinity, shape (n, k).

    The spectrum of a graph in several pieces is that of its pieces together. Taking each piece by
    itself keeps the eigenvalue 1 simple, which iterative solvers need. Of more than k pieces the
    k largest count; samples in the others get zeros. Up to `small` samples all eigenvectors are
    computed, and no iterations are needed.
    """
    if not sparse.issparse(affinity):
        return _leading(affinity, n_components, seed, small)[1]
    affinity = sparse.csr_array(affinity)
    n_pieces, piece = connected_components(affinity, directed=False)
    largest = np.argsort(-np.bincount(piece), kind="stable")[:n_components]
    per_piece = max(1, n_components - n_pieces + 1)
    values, vectors = [], []
    for number in largest:
        members = np.flatnonzero(piece == number)
        part = affinity[members][:, members]
        value, vector = _leading(part, min(per_piece, len(members)), seed, small)
        whole = np.zeros((len(piece), len(value)))
        whole[members] = vector
        values.append(value)
        vectors.append(whole)
    best = np.argsort(-np.concatenate(values), kind="stable")[:n_components]
    return np.hstack(vectors)[:, best]


def _leading(affinity: Any, k: int, seed: int, small: int) -> tuple[NDArray, NDArray]:
    """The k largest eigenvalues, descending, and eigenvectors (n, k) of the normalised affinity."""
    n = affinity.shape[0]
    degree = np.asarray(affinity.sum(axis=1), dtype=np.float64).reshape(-1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0.0)
    if n <= max(small, 3 * k):
        dense = affinity.toarray() if sparse.issparse(affinity) else np.asarray(affinity)
        dense = dense.astype(np.float64) * scale * scale[:, None]
        values, vectors = linalg.eigh(dense, subset_by_index=[n - k, n - 1])
    else:
        values, vectors = _iterated(_normalised(affinity, scale), k, "LA", seed)
    return values[::-1], vectors[:, ::-1]


def symmetric_factors(matrix: Tensor, rank: int, seed: int, small: int = SMALL) -> Tensor:
    """U sqrt(|s|) of the `rank` eigenvalues s largest in size of a symmetric matrix, (n, rank)."""
    n = len(matrix)
    rank = min(rank, n)
    if n <= max(small, 3 * rank):
        s, vectors = torch.linalg.eigh(matrix)
        chosen = s.abs().topk(rank).indices
        return vectors[:, chosen] * s[chosen].abs().sqrt()
    dense = matrix.cpu().numpy()
    values, found = _iterated(_normalised(dense, np.ones(n)), rank, "LM", seed)
    return torch.from_numpy(found * np.sqrt(np.abs(values))).to(matrix)


def _iterated(operator: LinearOperator, k: int, which: str, seed: int) -> tuple[NDArray, NDArray]:
    """k eigenvalues, ascending, and eigenvectors by Lanczos iterations."""
    n = operator.shape[0]
    start = np.random.default_rng(seed).standard_normal((n, k)).astype(operator.dtype)
    settings = {"ncv": min(n, max(2 * k + 20, 40)), "maxiter": 1000, "tol": 1e-6}
    try:
        values, vectors = seeded_eigsh(operator, k, seed, which, v0=start[:, 0], **settings)
    except ArpackNoConvergence:
        # Many eigenvalues close together: a block method gives the space they span at least.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            values, vectors = lobpcg(operator, start, largest=True, maxiter=500, tol=1e-4)
        warnings.warn(
            "The eigenvectors of the affinity did not converge fully; the graph is close to more "
            f"than {k} separate pieces.",
            ConvergenceWarning,
            stacklevel=7,
        )
    order = np.argsort(values)
    return values[order], vectors[:, order]


def _normalised(affinity: Any, scale: NDArray) -> LinearOperator:
    """D^-1/2 W D^-1/2 as products, in the precision of a dense W."""
    if sparse.issparse(affinity):
        half = sparse.diags_array(scale)
        return sparse.linalg.aslinearoperator((half @ affinity @ half).tocsr())
    matrix = torch.from_numpy(affinity)  # torch multiplies with all threads, like elsewhere
    diagonal = torch.from_numpy(scale).to(matrix.dtype)[:, None]

    def product(v: NDArray) -> NDArray:
        columns = torch.from_numpy(np.ascontiguousarray(v.reshape(len(v), -1), affinity.dtype))
        return (diagonal * (matrix @ (diagonal * columns))).numpy().reshape(v.shape)

    return LinearOperator(affinity.shape, matvec=product, matmat=product, dtype=affinity.dtype)
