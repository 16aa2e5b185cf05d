"""Wide samples in fewer coordinates: those along the leading directions that all of them share.

k subspaces of dimension p span k p directions together, whatever the number of columns, and a
rotation of the samples rotates their subspaces. So a start is searched for in the leading
directions of all samples, where it takes a fraction of the time. The residuals of subspaces within
these directions lack nothing but a constant of each sample, `outside`, and are compared as exactly
as in all columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kscn.subspaces.bases import Subspaces
from kscn.subspaces.dimension import energy_dims
from kscn.subspaces.update import ScatterSums, leading_directions

# Directions that are kept, unless the subspaces have more dimensions in all. They hold 98 % of the
# energy of MNIST's pixels and 99 % of COIL-20's; 256 gave no lower objective.
DIRECTIONS = 192
# Share of the energy that they may miss: dimensions are read off what they hold. Samples in strong
# noise have no leading directions and stay as they are.
MISSED = 0.05


@dataclass(frozen=True)
class Coordinates:
    """Samples z (m, r) along orthonormal `axes` (d, r), or as they are if that is None.

    `outside` (m,) is what the axes miss of the squared length of each sample.
    """

    z: Tensor
    outside: Tensor
    axes: Tensor | None = None

    @classmethod
    def leading(cls, z: Tensor, span: int) -> Coordinates:
        """Of samples z (m, d), for subspaces that have `span` dimensions in all.

        Columns in which all samples are equal share an axis of their own, the first, so that they
        are still told from the others.
        """
        count = max(DIRECTIONS, span)
        varying = (z != z[0]).any(dim=0)
        if varying.sum() <= count:
            return cls(z, z.new_zeros(len(z)))
        moving, constant = z[:, varying], torch.where(varying, 0.0, z[0])
        axes = z.new_zeros(z.shape[1], count)
        axes[varying] = leading_directions(moving.mT @ moving, count)
        inside = moving @ axes[varying]
        norms = moving.square().sum(dim=1)
        outside = (norms - inside.square().sum(dim=1)).clamp_(min=0)
        if outside.sum() > MISSED * norms.sum():
            return cls(z, z.new_zeros(len(z)))
        length = constant.norm()
        if length > 0:
            axes = torch.cat([constant[:, None] / length, axes], dim=1)
            inside = torch.cat([length.expand(len(z), 1), inside], dim=1)
        return cls(inside, outside, axes)

    def __getitem__(self, rows: Tensor) -> Coordinates:
        return Coordinates(self.z[rows], self.outside[rows], self.axes)

    def varying(self) -> tuple[Coordinates, bool]:
        """Only the columns in which samples differ, and whether the others hold anything."""
        varying = (self.z != self.z[0]).any(dim=0)
        if varying.all() or varying.sum() < 2:
            return self, False
        z, axes = self.z[:, varying], self.axes
        axes = None if axes is None else axes[:, varying]
        return Coordinates(z, self.outside, axes), bool(self.z[0, ~varying].any())

    def dims(self, sums: ScatterSums, members: Tensor) -> Tensor:
        """The dimension (k,) that the scatter `sums` of the `members` (m,) speaks for."""
        if self.axes is None:
            return energy_dims(sums.spectra())
        d, r = self.axes.shape
        missed = sums.weight.new_zeros(len(sums.weight) + 1)
        missed.index_add_(0, members + 1, self.outside.to(missed))  # label -1 belongs to none
        return energy_dims(sums.spectra(), missed[1:], d - r)

    def back(self, found: Subspaces) -> Subspaces:
        """Subspaces of these coordinates in the space that the samples came from."""
        if self.axes is None:
            return found
        axes = self.axes
        offsets = None if found.offsets is None else found.offsets @ axes.mT
        return Subspaces(axes @ found.bases, offsets)
