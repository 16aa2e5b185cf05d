"""The filters of a scattering transform, and filtering as products with real matrices.

Morlet wavelets and the Gaussian low-pass are kymatio's, constants included, so that features agree
with those of the field.

A map on a periodic grid is described by its coefficients in the real trigonometric basis (cosines
and sines along each axis), not by complex Fourier coefficients. Real maps then stay real, and a
transform along an axis of at most a hundred points is a product with one small dense matrix, which
processors do at nearly their full speed, while FFTs of that size mostly wait for memory.

A filter multiplies Fourier coefficients, and keeping every m-th pixel adds up those that the
coarse grid cannot tell apart. Both together are a matrix with few entries per row, fewer still
because a wavelet is negligible at most frequencies.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.fft import fft, fft2

# As the field's filters are normalised by it; the exact one would change features by 1e-4.
_PI = 3.1415
_PERIODS = 2  # a filter is made periodic by adding copies up to so many periods away
_NEGLIGIBLE = 1e-6  # share of a matrix's largest entry below which others are left out


def wavelets(shape: tuple[int, int], scale: int, angles: int) -> NDArray:
    """Spectra (angles, height, width) of the wavelets of one scale, from 0, the finest.

    psi(u) = g(u) (exp(i xi.u) - beta) with an elongated Gaussian g and beta such that psi has mean
    zero. Its width grows as 2**scale and its frequency xi falls as 2**-scale. Spectra are real,
    because psi(-u) is the conjugate of psi(u).
    """
    sigma, frequency, slant = 0.8 * 2**scale, 0.75 * np.pi / 2**scale, 4 / angles
    spectra = np.empty((angles, *shape))
    for turn in range(angles):
        angle = (int(angles - angles / 2 - 1) - turn) * np.pi / angles
        wave = _gabor(shape, sigma, angle, frequency, slant)
        envelope = _gabor(shape, sigma, angle, 0.0, slant)
        spectra[turn] = fft2(wave - wave.sum() / envelope.sum() * envelope).real
    return spectra


def low_pass(size: int, J: int) -> NDArray:
    """Spectrum along one axis of the Gaussian that averages over 2**J pixels; shape (size,).

    The Gaussian in two dimensions is the product of those along its axes.
    """
    sigma = 0.8 * 2 ** (J - 1)
    pixels = np.arange(-_PERIODS * size, (_PERIODS + 1) * size)
    copies = np.exp(-(pixels**2) / (2 * sigma**2)).reshape(-1, size)
    return fft(copies.sum(axis=0)).real / np.sqrt(2 * _PI * sigma**2)


def lower_resolution(spectra: NDArray, level: int, axes: int = 1) -> NDArray:
    """Spectra of the same filters on a grid that is 2**level times coarser along the last axes.

    Frequencies that the coarse grid cannot tell apart from lower ones are left out.
    """
    for axis in range(-axes, 0):
        half = spectra.shape[axis] // 2 ** (level + 1)
        spectra = np.take(spectra, np.arange(-half, half), axis=axis, mode="wrap")
        spectra = np.roll(spectra, half, axis=axis)  # frequency zero first
    return spectra


def _gabor(
    shape: tuple[int, int], sigma: float, angle: float, frequency: float, slant: float
) -> NDArray:
    """exp(i frequency v) under a Gaussian envelope, v along `angle`, periodic; (height, width)."""
    height, width = shape
    y = np.arange(-_PERIODS * height, (_PERIODS + 1) * height)[:, None]
    x = np.arange(-_PERIODS * width, (_PERIODS + 1) * width)
    along = y * np.cos(angle) + x * np.sin(angle)
    across = x * np.cos(angle) - y * np.sin(angle)
    envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
    wave = envelope * np.exp(1j * frequency * along)
    copies = 2 * _PERIODS + 1
    wave = wave.reshape(copies, height, copies, width).sum(axis=(0, 2))
    return wave * slant / (2 * _PI * sigma**2)


def trigonometric_basis(size: int) -> NDArray:
    """Orthonormal cosines, up to frequency size / 2, and sines as columns; shape (size, size)."""
    k = np.arange(size)
    waves = np.cos(2 * np.pi * np.outer(k, k) / size - np.pi / 2 * (2 * k > size))
    return waves / np.linalg.norm(waves, axis=0)


def filter_matrix(spectrum: NDArray, factor: int) -> sparse.csr_array:
    """From coefficients to those of the filtered map, of which every `factor`-th pixel is kept.

    The filter is a real spectrum (height, width), the result (2 * height * width / factor**2,
    height * width): first the rows of the real part of the filtered map, then those of the
    imaginary part.
    """
    height, width = spectrum.shape
    into = _grid_to_fourier(height, width)
    back = _grid_to_fourier(height // factor, width // factor).conj().T
    filtered = into * (spectrum.reshape(-1, 1) / factor)  # each frequency by its own number
    whole = back @ (_aliases(height, width, factor) @ filtered)
    parts = sparse.vstack([whole.real, whole.imag], format="csr")
    parts.data[np.abs(parts.data) < _NEGLIGIBLE * np.abs(parts.data).max(initial=0)] = 0
    parts.eliminate_zeros()
    return parts


def sampling_matrix(spectrum: NDArray, factor: int) -> NDArray:
    """From a line of pixels to every `factor`-th of the filtered line, its ends left out.

    The filter is a real and even spectrum (size,), the matrix (size / factor - 2, size).
    """
    size = len(spectrum)
    kernel = np.fft.ifft(spectrum).real
    return kernel[(np.arange(factor, size - factor, factor)[:, None] - np.arange(size)) % size]


@lru_cache(maxsize=8)
def _grid_to_fourier(height: int, width: int) -> sparse.csr_array:
    """From trigonometric to Fourier coefficients of maps, each taken row by row; unitary."""
    return sparse.kron(_to_fourier(height), _to_fourier(width), format="csr")


def _to_fourier(size: int) -> sparse.csr_array:
    """From trigonometric to Fourier coefficients, unitary; shape (size, size)."""
    matrix = fft(trigonometric_basis(size), axis=0, norm="ortho")
    return sparse.csr_array(np.where(np.abs(matrix) > 0.5, matrix, 0))  # 0, or of 1 or sqrt(1/2)


def _aliases(height: int, width: int, factor: int) -> sparse.csr_array:
    """Which frequencies become which when every `factor`-th pixel is kept, as zeros and ones."""
    h, w = height // factor, width // factor
    coarse = (np.arange(height) % h)[:, None] * w + np.arange(width) % w
    fine = np.arange(height * width)
    return sparse.csr_array((np.ones(len(fine)), (coarse.ravel(), fine)), shape=(h * w, len(fine)))
