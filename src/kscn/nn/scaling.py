"""Scaling of raw samples to what a network is fed; saved with the model, applied again later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class InputScaling(nn.Module):
    """(samples - shift) * factor, in float32.

    `kscn.runtime.moments.scaling_of` finds one for samples; `per_column` gives each feature a
    factor of its own.
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
        stored = scaled.flatten(1) / self.factor + self.shift
        return stored.float().reshape(scaled.shape)

    def config(self) -> dict[str, Any]:
        """The arguments that build this step again."""
        return {"shift": list(self.shift.shape), "factor": list(self.factor.shape)}

    def fault(self) -> str | None:
        """Say in words why this is no scaling, or return None when it is one."""
        return None if (self.factor > 0).all() else "the factor of samples is not positive"
