"""Clustering by self-expression: latents written by one another, as in DSC-Net.

For a few thousand latents. This module and `spectral` import no estimator, so that estimators can
start from such clusters.
"""

from __future__ import annotations

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.baselines.spectral import (
    angular_affinity,
    keep_largest_dense,
    spectral_labels,
    symmetric_factors,
)
from kscn.errors import InputError


def dsc_labels(
    latents: Tensor,
    n_clusters: int,
    subspace_dim: int = 9,
    *,
    ridge: float = 1.0,
    keep: float = 0.4,
    power: float = 8.0,
    random_state: int = 0,
) -> NDArray:
    """Cluster latents by self-expression, as DSC-Net does once its network is trained.

    Takes n^2 d operations for codes in closed form, and an n x n matrix: for a few thousand.

    Parameters
    ----------
    latents : Tensor, shape (n, d)
        What to cluster, as it is: bring it to unit norm first where length means nothing.
    n_clusters, subspace_dim : int
        Number and dimension of the subspaces.
    ridge : float
        Weight of the codes' size, in units of the mean square of the latents' singular values.
    keep, power
        As for `DSCNet`.
    random_state : int
        Seed of spectral clustering.

    Returns
    -------
    labels : ndarray of int, shape (n,)
        Clusters are numbered by falling size.
    """
    if not latents.isfinite().all():
        raise InputError("latents contain NaN or infinity; lower the network's learning rate.")
    if not n_clusters <= len(latents):
        raise InputError(
            f"{len(latents)} latents should be >= n_clusters={n_clusters}; give more of them."
        )
    latents = latents.detach().cpu()
    codes = ridge_codes(latents, ridge * mean_energy(latents))
    rank = n_clusters * subspace_dim + 1
    affinity = code_affinity(codes, rank=rank, keep=keep, power=power, seed=random_state)
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


def code_affinity(codes: Tensor, rank: int, keep: float, power: float, seed: int) -> NDArray:
    """Affinity (n, n) of codes, which are overwritten.

    The largest entries of each row that hold the share `keep` of its l1 norm, symmetrised; of that
    the best approximation U s V^T of the given rank; then max(0, cosine)^power of the rows of
    U sqrt(s).
    """
    codes = keep_largest_dense(codes, keep)
    codes = (codes + codes.mT).div_(2)
    return angular_affinity(symmetric_factors(codes, rank, seed), power)
