"""k subspaces as one value: residuals and assignment for all of them at once.

A linear subspace i is an orthonormal basis S_i (d x p); an affine one adds an offset c_i with
S_i^T c_i = 0. The squared distance of z to it is

    r_i(z) = |z|^2 - |S_i^T z|^2 - 2 c_i^T z + |c_i|^2,

so all k distances of a block come from one product with a d x (k p) matrix. That form subtracts
nearly equal numbers when z lies almost on the subspace; those entries are evaluated again as
|(z - c_i) - S_i S_i^T (z - c_i)|^2, which keeps their relative accuracy in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

# Below this share of |z|^2 + |c|^2 the cheap form of the residual has lost too many digits.
CANCELLATION = 2e-3
# BLAS multiplies leftover rows and columns by other kernels, with other rounding. Padded to whole
# ones, a sample's result is the same to the bit whichever samples it is evaluated with.
WHOLE_ROWS, WHOLE_COLUMNS = 32, 8
TILE = 4096  # rows per matrix product: a tile and its projections stay in cache


def rows_times(z: Tensor, matrix: Tensor) -> Tensor:
    """z @ matrix, with each row's result independent of how many rows there are."""
    (n, _), width = z.shape, matrix.shape[1]
    matrix = matrix.contiguous()  # with a transposed one, rounding follows the alignment of rows
    if -width % WHOLE_COLUMNS:
        matrix = torch.nn.functional.pad(matrix, (0, -width % WHOLE_COLUMNS))
    if -n % WHOLE_ROWS:
        z = torch.nn.functional.pad(z, (0, 0, 0, -n % WHOLE_ROWS))
    return (z @ matrix)[:n, :width]


@dataclass(frozen=True)
class Subspaces:
    """k linear or affine subspaces of R^d.

    Parameters
    ----------
    bases : Tensor, shape (k, d, p)
        Orthonormal columns. A subspace of smaller dimension has zero columns at the end.
    offsets : Tensor, shape (k, d), optional
        The point of each affine subspace nearest to the origin, orthogonal to its basis.
    """

    bases: Tensor
    offsets: Tensor | None = None

    @classmethod
    def along_axes(cls, k: int, p: int) -> Subspaces:
        """k subspaces of dimension p, orthogonal to each other, along the axes of R^(k p)."""
        return cls(torch.eye(k * p).view(k * p, k, p).permute(1, 0, 2).contiguous())

    @classmethod
    def through(cls, points: Tensor | None, bases: Tensor) -> Subspaces:
        """Affine subspaces with these bases through `points` (k, d); linear ones without points."""
        if points is None:
            return cls(bases)
        return cls(bases, points - (bases @ (bases.mT @ points[..., None])).squeeze(-1))

    @property
    def n_clusters(self) -> int:
        """The number of subspaces, k."""
        return self.bases.shape[0]

    @property
    def ambient_dim(self) -> int:
        """The dimension of the space they lie in, d."""
        return self.bases.shape[1]

    @property
    def used(self) -> Tensor:
        """Which columns of each basis are not zero, shape (k, p)."""
        return (self.bases != 0).any(dim=-2)

    @property
    def dims(self) -> Tensor:
        """The dimension of each subspace, shape (k,)."""
        return self.used.sum(dim=-1)

    @cached_property
    def _stacked(self) -> Tensor:
        k, d, p = self.bases.shape
        return self.bases.permute(1, 0, 2).reshape(d, k * p).contiguous()

    @cached_property
    def _offset_norms(self) -> Tensor:
        assert self.offsets is not None
        return self.offsets.square().sum(dim=1)

    def residuals(self, z: Tensor, norms: Tensor | None = None) -> Tensor:
        """Squared distances of the rows of z (n, d) to every subspace, shape (n, k).

        `norms` may hold the squared norms of the rows when the caller has them already.
        """
        if norms is None:
            norms = z.square().sum(dim=1)
        energy = torch.cat([self._energy(tile) for tile in z.split(TILE)])  # (n, k)
        residual = torch.sub(norms[:, None], energy, out=energy)
        scale = norms[:, None]
        if self.offsets is not None:
            residual.sub_(rows_times(z, self.offsets.mT), alpha=2).add_(self._offset_norms)
            scale = scale + self._offset_norms
        if z.dtype == torch.float32:
            self._repair_cancelled(z, residual, residual < CANCELLATION * scale)
        return residual.clamp_(min=0)

    def _energy(self, z: Tensor) -> Tensor:
        """Squared norms of the projections of z on every subspace, shape (n, k)."""
        k, _, p = self.bases.shape
        return rows_times(z, self._stacked).unflatten(1, (k, p)).square_().sum(dim=2)

    def _repair_cancelled(self, z: Tensor, residual: Tensor, cancelled: Tensor) -> None:
        # The usual case, and on the CPU much cheaper to tell; another device waits once as it is.
        if z.device.type == "cpu" and not cancelled.any():
            return
        cluster, all_rows = cancelled.mT.nonzero().unbind(dim=1)
        sizes = torch.bincount(cluster.cpu()).tolist() if len(cluster) else []
        for i, rows in enumerate(all_rows.split(sizes)):
            away = z[rows] if self.offsets is None else z[rows] - self.offsets[i]
            away = away - rows_times(rows_times(away, self.bases[i]), self.bases[i].mT)
            residual[rows, i] = away.square().sum(dim=1)

    def assign(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest subspace of every row (ties: the first) and the squared distance to it."""
        distance, label = self.residuals(z).min(dim=1)
        return label, distance

    def __getitem__(self, index: int | slice | Tensor) -> Subspaces:
        offsets = None if self.offsets is None else self.offsets[index]
        return Subspaces(self.bases[index], offsets)

    def replaced(self, index: Tensor, new: Subspaces) -> Subspaces:
        """These subspaces, in their precision, with `new` ones in the places `index`."""
        index = index.to(self.bases.device)
        bases = self.bases.index_copy(0, index, new.bases.to(self.bases))
        if self.offsets is None or new.offsets is None:
            return Subspaces(bases)
        return Subspaces(bases, self.offsets.index_copy(0, index, new.offsets.to(self.offsets)))

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> Subspaces:
        """The same subspaces in another precision, and on another device if one is named."""
        place = device or self.bases.device
        offsets = None if self.offsets is None else self.offsets.to(place, dtype)
        return Subspaces(self.bases.to(place, dtype), offsets)

    def fault(self, atol: float = 1e-5) -> str | None:
        """Say in words why these are not valid subspaces, or return None when they are."""
        if self.bases.ndim != 3:
            return f"bases must have shape (k, d, p), not {tuple(self.bases.shape)}"
        k, d, p = self.bases.shape
        if not 0 < p < d:
            return f"the subspace dimension {p} must be between 1 and {d - 1}"
        if not self.bases.isfinite().all():
            return "bases contain NaN or infinity"
        gram = self.bases.mT @ self.bases
        used = torch.arange(p, device=gram.device) < self.dims[:, None]  # zero columns come last
        error = (gram - torch.diag_embed(used.to(gram.dtype))).abs().amax(dim=(1, 2))
        if error.max() > atol:
            return f"basis {int(error.argmax())} is off orthonormality by {error.max():.1e}"
        if self.offsets is None:
            return None
        if self.offsets.shape != (k, d):
            return f"offsets must have shape {(k, d)}, not {tuple(self.offsets.shape)}"
        if not self.offsets.isfinite().all():
            return "offsets contain NaN or infinity"
        return None
