"""What a scan looks at: a subsample in principal components, noise like it, numbers to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from kscn.data import Source
from kscn.errors import InputError
from kscn.features.base import check_finite


@dataclass(frozen=True)
class Rules:
    """The numbers of a scan."""

    # What is scanned where nothing is asked for.
    lowest_k: int = 2
    highest_k: int = 20
    highest_p: int = 12
    # Of few columns all components are kept, of more those that hold this share of the energy:
    # the rest is mostly noise, and time goes with their number.
    few_components: int = 32
    most_components: int = 64
    kept: float = 0.99
    most_numbers: int = 2**27  # of the subsample, 512 MiB
    smallest: int = 10  # samples that a cluster must have in a half, on average
    # Numbers of the coarse grid: all small ones, then steps of a fifth to a third.
    coarse_k: tuple[int, ...] = (2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 30, 40, 50)
    coarse_p: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 30)
    # Of each fit, of which there are many: starts that race, and rounds of swaps after that.
    racers: int = 5
    rounds: int = 1
    # Dimensions at which every k is tried, cells that are judged again, new halves for each.
    lines: int = 3
    finalists: int = 3
    checks: int = 3
    # Draws of noise against what seems more stable. Where few directions are long, the stability of
    # one draw is anything from 0 to 0.9: the mean of the checks says little.
    doubts: int = 12
    led_by_mean: float = 0.8  # share of the mean in the first eigenvalue of a cluster
    named: int = 5  # rivals at most in a sentence
    tie: float = 0.015  # stabilities this close are the same
    sure: float = 0.9  # stability for high confidence, ...
    fair: float = 0.7  # ... and for medium
    excess: float = 0.25  # of stability over that of noise, or there is no evidence
    # Shares of the time after which the coarse grid and the lines end.
    coarse_until: float = 0.55
    lines_until: float = 0.8


RULES = Rules()


def components(
    source: Source, n_samples: int, seed: int, rng: np.random.Generator
) -> tuple[NDArray, float]:
    """A subsample in its principal components (m, d), and the share of energy in them.

    Not centred: the subspaces pass through the origin, and a rotation leaves them what they are.
    """
    d = int(np.prod(source.shape))
    count = min(len(source), n_samples, max(RULES.most_numbers // d, 1))
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
    if min(count, d) <= RULES.most_components:
        left, values, _ = np.linalg.svd(x, full_matrices=False)
    else:
        left, values, _ = randomized_svd(x, RULES.most_components, random_state=seed)
    held = np.cumsum(np.square(values, dtype=np.float64)) / total
    # All directions of small data: what looks negligible may be the noise that ends a spectrum.
    kept = len(values) if d <= RULES.few_components else int(np.searchsorted(held, RULES.kept)) + 1
    kept = min(max(kept, RULES.highest_p + 2), len(values))
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
    most = n // (2 * RULES.smallest)
    if d < 2 or most < RULES.lowest_k:
        raise InputError(
            f"the data has {n} samples in {d} dimensions; a scan needs at least "
            f"{2 * RULES.smallest * RULES.lowest_k} samples and 2 dimensions."
        )
    if clusters is None:
        clusters = range(RULES.lowest_k, min(RULES.highest_k, most) + 1)
    if dims is None:
        dims = range(1, min(RULES.highest_p, d - 1) + 1)
    if not clusters or min(clusters) < RULES.lowest_k or max(clusters) > most:
        raise InputError(
            f"the numbers of clusters must lie between {RULES.lowest_k} and {most} for {n} samples "
            f"({RULES.smallest} in each cluster of each half); got {_span(clusters)}."
        )
    if not dims or min(dims) < 1 or max(dims) >= d:
        raise InputError(
            f"the dimensions must lie between 1 and {d - 1} for samples in {d} dimensions; got "
            f"{_span(dims)}."
        )
    return sorted(set(clusters)), sorted(set(dims))


def _span(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}" if values else "none"
