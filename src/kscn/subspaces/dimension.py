"""How many dimensions a cluster has, from the energy of its members' spectrum."""

from __future__ import annotations

import torch
from torch import Tensor

# Between these shares of the energy a clear drop in the spectrum decides; without one, ENOUGH does.
LEAST, ENOUGH, MOST = 0.8, 0.9, 0.99
CLEAR_DROP = 3.0
# Down to this share if all that follows the drop is level: strong noise holds much of the energy.
LEAST_ABOVE_NOISE = 0.3


def energy_dims(spectra: Tensor) -> Tensor:
    """The dimension that each descending spectrum (k, d) speaks for, between 1 and d - 1.

    Noise spreads evenly over the directions outside the subspace, so the end of the subspace shows
    as a drop between neighbouring eigenvalues. The largest drop by a factor of CLEAR_DROP or more,
    among dimensions that hold between 80 % and 99 % of the energy, is taken; a spectrum without
    such a drop gets the smallest dimension that holds 90 %. A drop to a level that then lasts, less
    than CLEAR_DROP above its mean, ends a subspace in strong noise: 30 % of the energy are enough.
    """
    spectra = spectra.double()
    d = spectra.shape[1]
    total = spectra.sum(dim=1, keepdim=True).clamp(min=1e-300)
    held = spectra.cumsum(dim=1) / total  # (k, d): with 1, 2, ... directions
    floor = 1e-9 * total
    drop = (spectra[:, :-1] + floor) / (spectra[:, 1:] + floor)  # after p directions, p < d
    # The first p that holds MOST is still in the window: noise-free data drops right there.
    before = torch.cat([torch.zeros_like(held[:, :1]), held[:, :-2]], dim=1)
    rest = torch.arange(d - 1, 0, -1, device=spectra.device)  # directions after p
    level = (total - spectra.cumsum(dim=1)[:, :-1]) / rest
    noise = (spectra[:, 1:] <= CLEAR_DROP * level) & (held[:, :-1] >= LEAST_ABOVE_NOISE)
    window = ((held[:, :-1] >= LEAST) | noise) & (before < MOST)
    drop = torch.where(window, drop, 0.0)
    steepest = drop.argmax(dim=1)
    clear = drop.gather(1, steepest[:, None])[:, 0] >= CLEAR_DROP
    enough = (held < ENOUGH).sum(dim=1)
    return (torch.where(clear, steepest, enough) + 1).clamp(1, max(d - 1, 1))
