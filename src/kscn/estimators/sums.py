"""The scatter sums of a model: what they cost, and how a fitted model gets them back.

Sums are k matrices of d x d. They are not part of a model, whose spectra say nearly as much.
"""

from __future__ import annotations

import torch
from numpy.typing import NDArray

from kscn.errors import InputError
from kscn.subspaces import ScatterSums, Subspaces

GIB = 2**30
# Beyond this, the eigenvectors of the sums would take hours anyway.
MOST_BYTES = 8 * GIB


def check_size(n_clusters: int, dim: int) -> None:
    """Refuse a problem whose sums would not fit in memory, before anything is allocated."""
    needed = int(n_clusters) * dim**2 * 8
    if needed > MOST_BYTES:
        raise InputError(
            f"n_clusters={n_clusters} in {dim} features needs {needed / GIB:.1f} GiB for a "
            f"{dim} x {dim} matrix per cluster, more than the limit of {MOST_BYTES / GIB:.0f} GiB; "
            "reduce the features first, for example by PCA."
        )


def sums_from_spectra(current: Subspaces, spectra: NDArray, weights: NDArray) -> ScatterSums:
    """Sums on the CPU to continue a stream from: exact inside the subspaces, isotropic outside.

    Parameters
    ----------
    current : Subspaces
        The fitted subspaces, in the coordinates of the stream.
    spectra : ndarray of shape (k, d)
        Eigenvalues of each cluster's scatter, descending.
    weights : ndarray of shape (k,)
        Weight of each cluster.
    """
    current = current.to(torch.float64, "cpu")
    k, d, p = current.bases.shape
    values = torch.from_numpy(spectra)
    sums = ScatterSums(k, d, current.offsets is not None)
    sums.weight += torch.from_numpy(weights)
    used = torch.arange(p) < current.dims[:, None]
    inside = values[:, :p] * used
    level = (values.sum(dim=1) - inside.sum(dim=1)) / (d - current.dims)
    excess = (inside - level[:, None]) * used
    sums.second += (current.bases * excess[:, None]) @ current.bases.mT
    sums.second += level[:, None, None] * torch.eye(d, dtype=torch.float64)
    if sums.first is not None and current.offsets is not None:
        sums.first += sums.weight[:, None] * current.offsets
        sums.second += sums.first[:, :, None] * current.offsets[:, None]
    return sums
