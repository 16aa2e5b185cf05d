"""What a scan looks at: a subsample in principal components, noise like it, numbers to try."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from kscn.data import Source
from kscn.errors import InputError
from kscn.features.base import check_finite

LOWEST_K, HIGHEST_K, HIGHEST_P = 2, 20, 12  # what is scanned where nothing is asked for
FEW_COMPONENTS, MOST_COMPONENTS, KEPT = 32, 64, 0.99  # all of few, else this share of the energy
MOST_NUMBERS = 2**27  # of the subsample, 512 MiB
SMALLEST = 10  # samples that a cluster must have in a half, on average


def components(
    source: Source, n_samples: int, seed: int, rng: np.random.Generator
) -> tuple[NDArray, float]:
    """A subsample in its principal components (m, d), and the share of energy in them.

    Not centred: the subspaces pass through the origin, and a rotation leaves them what they are.
    """
    d = int(np.prod(source.shape))
    count = min(len(source), n_samples, max(MOST_NUMBERS // d, 1))
    rows = np.sort(rng.choice(len(source), count, replace=False))
    samples = source.take(rows)
    check_finite(samples, source.name)
    peak = max(float(samples.max()), -float(samples.min()))
    if peak == 0:
        raise InputError(f"{source.name} holds nothing but zeros; there is no structure to find.")
    wide = samples.dtype.itemsize > 4  # may hold what float32 cannot
    x = np.divide(samples.reshape(count, d), peak, dtype=np.float64 if wide else np.float32)
    x = x.astype(np.float32, copy=False)
    total = float(np.square(x, dtype=np.float64).sum())
    if min(count, d) <= MOST_COMPONENTS:
        left, values, _ = np.linalg.svd(x, full_matrices=False)
    else:
        left, values, _ = randomized_svd(x, MOST_COMPONENTS, random_state=seed)
    held = np.cumsum(np.square(values, dtype=np.float64)) / total
    # All directions of small data: what looks negligible may be the noise that ends a spectrum.
    kept = len(values) if d <= FEW_COMPONENTS else int(np.searchsorted(held, KEPT)) + 1
    kept = min(max(kept, HIGHEST_P + 2), len(values))
    z = left[:, :kept] * values[:kept]
    return np.ascontiguousarray(z / np.sqrt(total / count), dtype=np.float32), float(held[kept - 1])


def split(z: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Two halves of the samples, at random."""
    order = torch.from_numpy(rng.permutation(len(z)))
    return z[order[::2]], z[order[1::2]]


def noise_like(z: Tensor, rng: np.random.Generator) -> Tensor:
    """Normal samples with the mean and the covariance of z: no groups, all else alike."""
    mean, covariance = z.mean(dim=0).cpu().numpy(), torch.cov(z.mT).cpu().numpy()
    drawn = rng.multivariate_normal(mean, covariance, size=len(z), method="eigh")
    return torch.from_numpy(drawn.astype(np.float32)).to(z.device)


def checked_grid(
    n: int, d: int, clusters: Sequence[int] | None, dims: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """The k and p to try, or why they cannot be tried."""
    most = n // (2 * SMALLEST)
    if d < 2 or most < LOWEST_K:
        raise InputError(
            f"the data has {n} samples in {d} dimensions; a scan needs at least "
            f"{2 * SMALLEST * LOWEST_K} samples and 2 dimensions."
        )
    if clusters is None:
        clusters = range(LOWEST_K, min(HIGHEST_K, most) + 1)
    if dims is None:
        dims = range(1, min(HIGHEST_P, d - 1) + 1)
    if not clusters or min(clusters) < LOWEST_K or max(clusters) > most:
        raise InputError(
            f"the numbers of clusters must lie between {LOWEST_K} and {most} for {n} samples "
            f"({SMALLEST} in each cluster of each half); got {_span(clusters)}."
        )
    if not dims or min(dims) < 1 or max(dims) >= d:
        raise InputError(
            f"the dimensions must lie between 1 and {d - 1} for samples in {d} dimensions; got "
            f"{_span(dims)}."
        )
    return sorted(set(clusters)), sorted(set(dims))


def _span(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}" if values else "none"
