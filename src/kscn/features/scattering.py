"""Two-order wavelet scattering of images, fast on processors.

S0 = x * phi, S1 = |x * psi1| * phi and S2 = ||x * psi1| * psi2| * phi, where psi are Morlet
wavelets of J scales and L angles, psi2 is coarser than psi1, and phi averages over 2**J pixels.
The mathematics is kymatio's; what differs is how it is computed, see `kscn.features.filters`.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from kscn.constraints import Integer, check_value
from kscn.errors import InputError
from kscn.features import filters
from kscn.parallel import side_by_side

# Numbers handled at once, so that they stay in a core's own cache: coefficients of the first order,
# which all filters of the second read, and what one group of filters writes.
_PIECE, _GROUP = 600_000, 300_000
_MOST_IMAGES = 64  # handled at once, however small they are
# Numbers in the filters and in what turns lines of pixels into coefficients, some of them twice
# over: beyond this, making them would take more than half a gigabyte, and minutes.
_MOST_NUMBERS = 2**25


def maps_of(shape: tuple[int, int], J: int, L: int) -> tuple[int, tuple[int, int]]:
    """How many maps a `Scattering2D` makes and their shape, or why it cannot; makes no filter."""
    for name, value in {"J": J, "L": L}.items():
        check_value(name, value, [Integer(1)])
    told = f"images of {shape[0]} x {shape[1]} pixels"
    if min(shape) < 2 ** min(J, 62):
        other = f"lower J={J} or enlarge them" if J > 1 else "give them as vectors (n, d)"
        raise InputError(f"{told} are smaller than 2**{J}; {other}.")
    height, width = _padded(shape, J)
    numbers = 4 * (height**2 + width**2) + height * width * L * J * (J + 1) // 2
    if numbers > _MOST_NUMBERS:
        raise InputError(
            f"{told} with J={J} and L={L} need filters of {numbers} numbers, above the limit of "
            f"{_MOST_NUMBERS}; shrink the images."
        )
    return 1 + J * L + L * L * J * (J - 1) // 2, (shape[0] >> J, shape[1] >> J)


class Scattering2D(nn.Module):
    """Scattering coefficients of orders 0, 1 and 2.

    Images are extended by reflection to a size that 2**J divides and that leaves a border on each
    side, as kymatio does. The result of an image does not depend on the others in the batch. Pieces
    of the batch run side by side, one per thread; there are no gradients.

    The time per pixel grows with the width of the images: this is made for images of up to about
    a hundred pixels a side.

    Parameters
    ----------
    shape : tuple of int
        Height and width of the images, at least 2**J each.
    J : int
        Number of scales; maps are 2**J times smaller than the images.
    L : int
        Number of angles.

    Attributes
    ----------
    n_maps : int
        1 + J L + L**2 J (J - 1) / 2: the mean; then all (j1, angle1); then all
        (j1, angle1, j2, angle2) with j2 > j1.
    map_shape : tuple of int
        Height and width of a map.
    images_at_once : int
        Images in a piece.
    """

    def __init__(self, shape: tuple[int, int], J: int = 3, L: int = 8) -> None:
        super().__init__()
        self.n_maps, self.map_shape = maps_of(shape, J, L)
        self.shape, self.J, self.L = (int(shape[0]), int(shape[1])), J, L
        height, width = _padded(self.shape, J)
        room = max(1, min(_MOST_IMAGES, _PIECE // (height * width * L)))
        self.images_at_once = 2 ** (room.bit_length() - 1)

        pad_y, pad_x = _reflection(self.shape[0], height), _reflection(self.shape[1], width)
        phi_y, phi_x = filters.low_pass(height, J), filters.low_pass(width, J)
        psi = [filters.wavelets((height, width), j, L) for j in range(J)]
        self.average = _Separable(
            filters.sampling_matrix(phi_y, 2**J) @ pad_y,
            filters.sampling_matrix(phi_x, 2**J) @ pad_x,
        )
        self.analyse = _Separable(
            filters.trigonometric_basis(height).T @ pad_y,
            filters.trigonometric_basis(width).T @ pad_x,
        )
        grids = [_Grid(phi_y, phi_x, j, J) for j in range(J)]
        b = self.images_at_once
        self.first = [_grouped(psi[j], 2**j, grids[j], b) for j in range(J)]
        self.second = [self._coarser(psi, grids, j) for j in range(J)]
        # So that torch knows of them, for .to() and .double().
        groups = [group for scale in self.first + self.second for group in scale]
        self.parts = nn.ModuleList(groups)

    def _coarser(self, psi: list[NDArray], grids: "list[_Grid]", j1: int) -> "list[_Wavelets]":
        """The wavelets of the second order behind scale j1, in groups of angles."""
        groups: list[_Wavelets] = []
        for j2 in range(j1 + 1, self.J):
            spectra = filters.lower_resolution(psi[j2], j1, axes=2)
            groups += _grouped(spectra, 2 ** (j2 - j1), grids[j2], self.L * self.images_at_once)
        return groups

    def forward(self, images: Tensor) -> Tensor:
        """Maps (n, [c,] n_maps, h', w') of images (n, [c,] h, w) of any numeric type."""
        if images.ndim not in (3, 4) or tuple(images.shape[-2:]) != self.shape:
            h, w = self.shape
            raise InputError(
                f"images have shape {tuple(images.shape)}, expected (n, {h}, {w}) or "
                f"(n, channels, {h}, {w}); resize them, or make a Scattering2D of their shape."
            )
        pieces = images.reshape(-1, *self.shape).split(self.images_at_once)
        # One thread for each, also where there is only one piece: how many share a product may
        # change its rounding, and an image must not depend on how many others came with it.
        maps = side_by_side(self._scatter, pieces, self.average.y.device, each=1)
        return torch.cat(list(maps)).reshape(*images.shape[:-2], self.n_maps, *self.map_shape)

    @torch.no_grad()
    def _scatter(self, images: Tensor) -> Tensor:
        """Maps of a piece; always computed for a whole one, so that rounding is the same too."""
        n, b, (h, w) = len(images), self.images_at_once, self.shape
        x = images.to(self.average.y.dtype).permute(1, 2, 0)  # the images innermost, here and below
        x = nn.functional.pad(x, (0, b - n)).reshape(h, w, b)
        coefficients, mean = self.analyse(x), self.average(x)
        lower, second = [mean.flatten(0, 1).T.unsqueeze(1)], []  # each (b, maps, pixels)
        for wavelets, coarser in zip(self.first, self.second, strict=True):
            analysed = []
            for group in wavelets:
                maps = group(coefficients)  # (h, w, angles1 b)
                mean = group.grid.average(maps).flatten(0, 1)
                lower.append(mean.view(len(mean), -1, b).permute(2, 1, 0))
                if coarser:
                    analysed.append(group.grid.analyse(maps))
            if coarser:
                inner = torch.cat(analysed, dim=2)
                means = [group.grid.average(group(inner)).flatten(0, 1) for group in coarser]
                # (pixels, angles2, angles1, b), for all coarser scales
                joined = torch.cat([m.view(len(m), -1, self.L, b) for m in means], dim=1)
                second.append(joined.permute(3, 2, 1, 0).flatten(1, 2))
        return torch.cat(lower + second, dim=1)[:n].view(n, self.n_maps, *self.map_shape)


class _Wavelets(nn.Module):
    """Wavelets of one scale and several angles, applied to coefficients, and the modulus taken."""

    indices: Tensor
    offsets: Tensor
    weights: Tensor

    def __init__(self, spectra: NDArray, factor: int, grid: "_Grid") -> None:
        super().__init__()
        self.grid = grid
        self.small = [size // factor for size in spectra.shape[1:]]
        matrices = [filters.filter_matrix(spectrum, factor) for spectrum in spectra]
        # Rows ordered so that the angles come last, beside the columns of the coefficients.
        rows = np.arange(len(matrices) * matrices[0].shape[0]).reshape(len(matrices), -1).T.ravel()
        matrix = sparse.vstack(matrices, format="csr")[rows]
        for name, values in {"indices": matrix.indices, "offsets": matrix.indptr[:-1]}.items():
            self.register_buffer(name, torch.from_numpy(values).long(), persistent=False)
        self.register_buffer("weights", torch.from_numpy(matrix.data).float(), persistent=False)

    def forward(self, coefficients: Tensor) -> Tensor:
        """|x * psi| (h, w, angles c), at the resolution of the scale, of x (H, W, c)."""
        # A sparse matrix times a dense one; torch.sparse takes three times as long.
        columns = coefficients.flatten(0, 1)
        product = torch.embedding_bag(
            columns, self.indices, self.offsets, per_sample_weights=self.weights
        )[0]
        return self.grid.modulus(product.view(2, *self.small, -1))


def _grouped(spectra: NDArray, factor: int, grid: "_Grid", columns: int) -> list[_Wavelets]:
    """Wavelets of many angles in groups, each of which writes few enough numbers at once."""
    numbers = 2 * spectra[0].size // factor**2 * columns
    size = max(1, _GROUP // numbers)
    return [
        _Wavelets(spectra[low : low + size], factor, grid) for low in range(0, len(spectra), size)
    ]


class _Grid(nn.Module):
    """The pixels on which maps of one scale live: from coefficients, back to them, and means."""

    def __init__(self, phi_y: NDArray, phi_x: NDArray, j: int, J: int) -> None:
        super().__init__()
        bases, means = [], []
        for phi in (phi_y, phi_x):
            bases.append(filters.trigonometric_basis(len(phi) // 2**j))
            means.append(filters.sampling_matrix(filters.lower_resolution(phi, j), 2 ** (J - j)))
        self.synthesise = _Separable(*bases)
        self.analyse = _Separable(*(basis.T for basis in bases))
        self.average = _Separable(*means)  # around every 2**J-th pixel

    def modulus(self, coefficients: Tensor) -> Tensor:
        """Absolute values (h, w, c) of the complex map with coefficients (2, h, w, c)."""
        re, im = self.synthesise(coefficients)
        return re.mul_(re).addcmul_(im, im).sqrt_()


class _Separable(nn.Module):
    """A matrix applied along the height and one along the width of maps (..., h, w, c)."""

    y: Tensor
    x: Tensor

    def __init__(self, y: NDArray, x: NDArray) -> None:
        super().__init__()
        for name, matrix in {"y": y, "x": x}.items():  # made of the settings, so not saved
            tensor = torch.from_numpy(np.ascontiguousarray(matrix)).float()
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        """The maps on another grid."""
        *lead, h, w, c = maps.shape
        maps = self.y @ maps.reshape(*lead, h, w * c)
        maps = self.x @ maps.view(-1, w, c)
        return maps.view(*lead, len(self.y), len(self.x), c)


def _reflection(size: int, padded: int) -> NDArray:
    """The matrix that extends a line of pixels by reflection; shape (padded, size)."""
    before = (padded - size) // 2
    pixels = np.pad(np.arange(size), (before, padded - size - before), mode="reflect")
    return np.eye(size)[pixels]


def _padded(shape: tuple[int, int], J: int) -> tuple[int, int]:
    """Height and width with the border that reflection fills."""
    height, width = ((size // 2**J + 2) * 2**J for size in shape)
    return height, width
