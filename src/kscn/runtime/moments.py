"""Mean and covariance of all samples of a fit, and how a network's input is scaled by them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kscn.data import Source
from kscn.errors import TrainingError
from kscn.nn import InputScaling
from kscn.runtime.blocks import Blocks, check_numbers
from kscn.runtime.device import CPU
from kscn.runtime.group import ALONE, Group, place

NUMBERS = 2**21  # looked at together
TINY = 1e-37  # about the smallest scale that float32 can be divided by
ROUNDING = 1e-14  # deviations that are as small beside the values themselves


class Moments(NamedTuple):
    """Of the samples of all processes, in float64."""

    mean: Tensor  # (d,)
    variance: Tensor  # (d,) of each column, or the covariance (d, d)


def moments(
    source: Source, group: Group = ALONE, device: torch.device = CPU, columns: bool = False
) -> Moments:
    """Mean and covariance, or the variance of each of the `columns`, in one pass."""
    # Sums run relative to the first sample of all: values that are large beside their differences
    # would otherwise lose these to rounding.
    plain = Blocks(source, torch.float64, device)
    pivot = group.agree(plain.take(np.zeros(1, np.int64))[0])
    blocks = Blocks(source, torch.float64, device, pivot, max(1, NUMBERS // plain.dim))
    total = torch.zeros_like(pivot)
    second = total.clone() if columns else total.new_zeros(len(total), len(total))
    for _, z in blocks:
        total += z.sum(dim=0)
        second += z.square().sum(dim=0) if columns else z.mT @ z
    (n,) = group.add(len(source))
    mean, second = group.sum(total) / n, group.sum(second) / n
    return Moments(pivot + mean, second - (mean.square() if columns else mean[:, None] * mean))


def code_moments(codes: Source, group: Group = ALONE, device: torch.device = CPU) -> Moments:
    """Moments of codes, which must carry something to cluster by."""
    found = moments(codes, group, device)
    spread = float(found.variance.trace())
    energy = spread + float(found.mean.square().sum())
    if not energy < float("inf"):
        raise TrainingError(
            "the latent is no longer finite after pretraining; lower learning_rate and fit again."
        )
    if spread <= 1e-10 * max(energy, 1e-30):
        raise TrainingError(
            "the latent collapsed: the autoencoder gives all samples the same code, so there is "
            "nothing to cluster; lower learning_rate, train longer, or use another seed."
        )
    return found


def scaling_of(source: Source, image: bool, group: Group = ALONE) -> InputScaling:
    """The scaling for the samples of all processes, which are read once and must be finite.

    Images keep their zero and are divided by the largest value in them: not simply by 255, with
    which digits in bytes from 0 to 16 would be too faint to learn from. Vectors are centred and
    divided by their root mean square deviation, one number for all features, so that directions
    keep their relative sizes.
    """
    if image:
        largest = 0.0
        for first, rows in source.batches(max(1, NUMBERS // max(1, source.row_bytes))):
            check_numbers(rows, source.name, place(source)[0] + first)
            largest = max(largest, float(rows.max()), -float(rows.min()))
        largest = float(group.gather(torch.tensor([largest], dtype=torch.float64)).max())
        return InputScaling.by(torch.zeros(()), 1 / largest if largest > TINY else 1.0)
    found = moments(source, group, columns=True)
    variance = float(found.variance.mean())
    Blocks(source, torch.float64, CPU).check(variance)
    spread = max(variance, 0.0) ** 0.5
    least = max(ROUNDING * float(found.mean.abs().max()), TINY)
    return InputScaling.by(found.mean, 1 / spread if spread > least else 1.0)
