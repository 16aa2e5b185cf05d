"""Mean and covariance of all samples of a fit, and how a network's input is scaled by them."""

import numpy as np
import torch
from torch import Tensor

from kscn.data import Source
from kscn.errors import TrainingError
from kscn.nn import InputScaling
from kscn.runtime.blocks import Blocks, check_finite
from kscn.runtime.device import CPU
from kscn.runtime.group import ALONE, Group, place

NUMBERS = 2**21  # looked at together
TINY = 1e-37  # about the smallest scale that float32 can be divided by
ROUNDING = 1e-14  # deviations that are as small beside the values themselves


def moments(
    source: Source, group: Group = ALONE, device: torch.device = CPU, columns: bool = False
) -> tuple[Tensor, Tensor]:
    """Mean (d,) and covariance (d, d) of the samples of all processes, in float64, by one pass.

    With `columns` the variance of each of them (d,) in place of the covariance.
    """
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
    return pivot + mean, second - (mean.square() if columns else mean[:, None] * mean)


def code_moments(
    codes: Source, group: Group = ALONE, device: torch.device = CPU
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of codes, which must carry something to cluster by."""
    mean, covariance = moments(codes, group, device)
    spread = float(covariance.trace())
    energy = spread + float(mean.square().sum())
    if not spread > 1e-10 * max(energy, 1e-30):
        raise TrainingError(
            "the latent collapsed or is no longer finite: the autoencoder leaves nothing to "
            "cluster by; lower learning_rate, train longer, or use another seed."
        )
    return mean, covariance


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
            check_finite(rows, source.name, place(source)[0] + first)
            largest = max(largest, float(rows.max()), -float(rows.min()))
        largest = float(group.gather(torch.tensor([largest], dtype=torch.float64)).max())
        return InputScaling.by(torch.zeros(()), 1 / largest if largest > TINY else 1.0)
    mean, variances = moments(source, group, columns=True)
    variance = float(variances.mean())
    Blocks(source, torch.float64, CPU).check(variance)
    spread = max(variance, 0.0) ** 0.5
    least = max(ROUNDING * float(mean.abs().max()), TINY)
    return InputScaling.by(mean, 1 / spread if spread > least else 1.0)
