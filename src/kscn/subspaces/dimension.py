"""How many dimensions a cluster has, from the energy of its members' spectrum."""

from __future__ import annotations

import torch
from torch import Tensor

# Between the least and the most of the energy a clear drop in the spectrum decides, one by this
# factor; without one, the share that is enough does.
LEAST, ENOUGH, MOST, CLEAR_DROP = 0.8, 0.9, 0.99, 3.0
# Instead of the least if all that follows the drop is level: strong noise holds much energy.
LEAST_ABOVE_NOISE = 0.3


def energy_dims(spectra: Tensor, missed: Tensor | float = 0.0, directions: int = 0) -> Tensor:
    """The dimension that each descending spectrum (k, d) speaks for, between 1 and d - 1.

    Of a longer spectrum these may be the leading values, if the energy `missed` (k,) by them is
    given, and the number of `directions` that it is spread over.

    Noise spreads evenly over the directions outside the subspace, so the end of the subspace shows
    as a drop between neighbouring eigenvalues. The largest drop by a factor of 3 or more,
    among dimensions that hold between 80 % and 99 % of the energy, is taken; a spectrum without
    such a drop gets the smallest dimension that holds 90 %. A drop to a level that then lasts, no
    eigenvalue above 3 times its mean, ends a subspace in strong noise: 30 % of the energy are
    enough.
    """
    spectra = spectra.double()
    d = spectra.shape[1]
    inside = spectra.sum(dim=1, keepdim=True).clamp(min=1e-300)
    total = inside + torch.as_tensor(missed).to(inside).reshape(-1, 1)
    held = spectra.cumsum(dim=1) / total  # (k, d): with 1, 2, ... directions
    floor = 1e-9 * total
    drop = (spectra[:, :-1] + floor) / (spectra[:, 1:] + floor)  # after p directions, p < d
    # The first p that holds 99 % is still in the window: noise-free data drops right there.
    # Of the energy inside, since the last of the leading values end in a drop of no meaning.
    before = torch.cat([torch.zeros_like(held[:, :1]), held[:, :-2]], dim=1) * (total / inside)
    rest = torch.arange(d - 1, 0, -1, device=spectra.device) + directions  # after p
    level = (total - spectra.cumsum(dim=1)[:, :-1]) / rest
    even = spectra[:, 1:] <= CLEAR_DROP * level
    noise = even & (held[:, :-1] >= LEAST_ABOVE_NOISE)
    window = ((held[:, :-1] >= LEAST) | noise) & (before < MOST)
    drop = torch.where(window, drop, 0.0)
    steepest = drop.argmax(dim=1)
    clear = drop.gather(1, steepest[:, None])[:, 0] >= CLEAR_DROP
    enough = (held < ENOUGH).sum(dim=1)
    return (torch.where(clear, steepest, enough) + 1).clamp(1, max(d - 1, 1))
