"""Scaling of raw samples to what a network is fed; saved with the model, applied again later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.data import Source
from kscn.errors import InputError

BLOCK = 2**21  # numbers looked at together while the scale of a source is found
LARGEST = 1e150  # beyond, squares leave the range of float64


def check_finite(rows: NDArray, name: str, numbers: int | NDArray = 0) -> None:
    """Refuse samples that are no numbers, in scikit-learn's words, and say which is the first.

    `numbers` are those of the samples, or that of the first if they follow one another.
    """
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        what = "NaN" if np.isnan(rows).any() else "infinity"
        first = int((~np.isfinite(rows)).reshape(len(rows), -1).any(axis=1).argmax())
        number = numbers + first if isinstance(numbers, int) else numbers[first]
        raise InputError(
            f"Input {name} contains {what} in row {number}; remove or replace such samples first."
        )


class InputScaling(nn.Module):
    """(samples - shift) * factor, in float32.

    Images keep their zero and are divided by the largest value in them. Vectors are centred and
    divided by their root mean square deviation, one number for all features, so that directions
    keep their relative sizes; `per_column` gives each feature a factor of its own.
    """

    row_by_row = True
    shift: Tensor
    factor: Tensor

    def __init__(self, shift: Sequence[int] = (), factor: Sequence[int] = ()) -> None:
        """The identity, with a shift and a factor of these shapes: () or (d,)."""
        super().__init__()
        self.register_buffer("shift", torch.zeros(tuple(shift), dtype=torch.float64))
        self.register_buffer("factor", torch.ones(tuple(factor), dtype=torch.float64))

    @classmethod
    def by(cls, shift: Tensor, factor: float | Tensor) -> InputScaling:
        """The scaling by a shift and a factor, in float64."""
        made = cls()
        made.shift = shift.double()
        made.factor = torch.as_tensor(factor, dtype=torch.float64)
        return made

    @classmethod
    def of(cls, source: Source, image: bool, block: int = BLOCK) -> InputScaling:
        """The scaling for the samples of `source`, which are read once and must be finite."""
        if image and source.dtype.kind in "bu" and source.dtype.itemsize == 1:
            # Not simply 255: digits in bytes from 0 to 16 would be too faint to learn from.
            rows_at_once = max(1, block // int(np.prod(source.shape)))
            brightest = max(int(rows.max()) for _, rows in source.batches(rows_at_once))
            return cls.by(torch.zeros(()), 1 / max(1, brightest))
        # Sums run relative to the first sample: values that are large beside their differences
        # would otherwise lose these to rounding.
        pivot = source[:1].reshape(-1).astype(np.float64)
        total = np.zeros_like(pivot)
        squares, largest = 0.0, 0.0
        for first, rows in source.batches(max(1, block // pivot.size)):
            rows = rows.reshape(len(rows), -1).astype(np.float64)
            check_finite(rows, source.name, first)
            largest = max(largest, float(np.abs(rows).max()))
            if image:
                continue
            if largest > LARGEST:
                raise InputError(
                    f"Input {source.name} holds values around {largest:.0e}, whose squares cannot "
                    "be represented; multiply all samples by a constant first."
                )
            rows -= pivot
            total += rows.sum(axis=0)
            squares += float(np.vdot(rows, rows))
        if image:
            return cls.by(torch.zeros(()), 1 / largest if largest > 1e-37 else 1.0)
        mean = total / len(source)
        variance = squares / (len(source) * mean.size) - float((mean**2).mean())
        spread = max(variance, 0.0) ** 0.5
        factor = 1 / spread if spread > max(1e-14 * largest, 1e-37) else 1.0
        return cls.by(torch.from_numpy(pivot + mean), factor)

    def without_shift(self) -> InputScaling:
        """The same factor about the origin."""
        return InputScaling.by(torch.zeros_like(self.shift), self.factor)

    def per_column(self, deviation: Tensor) -> InputScaling:
        """A factor for each feature, by its standard deviation at this scale; 0 leaves it."""
        deviation = deviation.to(self.factor)
        return InputScaling.by(self.shift, self.factor / deviation.where(deviation > 0, 1.0))

    def forward(self, samples: Tensor) -> Tensor:
        """Scaled samples in float32; vectors (n, d) where there is a shift for each feature."""
        if self.shift.ndim:
            samples = samples.flatten(1)
        if samples.dtype == torch.float64:  # large values that differ little
            return ((samples - self.shift) * self.factor).float()
        return (samples.float() - self.shift.float()) * self.factor.float()

    def inverse(self, scaled: Tensor) -> Tensor:
        """From the network's values back to the stored ones."""
        shift, factor = (
            entry.reshape(scaled.shape[1:]) if entry.ndim else entry
            for entry in (self.shift, self.factor)
        )
        return (scaled / factor + shift).float()

    def config(self) -> dict[str, Any]:
        """The arguments that build this step again."""
        return {"shift": list(self.shift.shape), "factor": list(self.factor.shape)}

    def fault(self) -> str | None:
        """Say in words why this is no scaling, or return None when it is one."""
        return None if (self.factor > 0).all() else "the factor of samples is not positive"


class Restoring(nn.Module):
    """From the values of an autoencoder to what it restores of them, as samples are stored."""

    def __init__(self, autoencoder: nn.Module, scaling: InputScaling) -> None:
        super().__init__()
        self.autoencoder, self.scaling = autoencoder, scaling

    def forward(self, batch: Tensor) -> Tensor:
        """Restored samples (n, d)."""
        codes = self.autoencoder.encode(batch)  # type: ignore[operator]
        restored = self.autoencoder.decode(codes)  # type: ignore[operator]
        return self.scaling.inverse(restored).flatten(1)
