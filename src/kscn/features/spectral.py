"""Filtering as products with real matrices: sparse ones for filters, dense ones for transforms.

A map on a periodic grid is described by its coefficients in the real trigonometric basis (cosines
and sines along each axis), not by complex Fourier coefficients. Real maps then stay real, and a
transform along an axis of at most a hundred points is a product with one small dense matrix, which
processors do at nearly their full speed, while FFTs of that size mostly wait for memory.

A filter multiplies Fourier coefficients, and keeping every m-th pixel adds up those that the
coarse grid cannot tell apart. Both together are a matrix with few entries per row, fewer still
because a wavelet is negligible at most frequencies.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

# Entries of a filter matrix below this share of the largest are left out.
NEGLIGIBLE = 1e-6


def trigonometric_basis(size: int) -> NDArray:
    """Orthonormal cosines and sines as columns; shape (size, size)."""
    waves = np.exp(2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size)
    return (waves @ _to_fourier(size)).real / np.sqrt(size)


def filter_matrix(spectrum: NDArray, factor: int) -> sparse.csr_array:
    """The map from coefficients to those of the filtered map, of which few pixels are kept.

    Parameters
    ----------
    spectrum : ndarray of shape (height, width)
        The filter, real, in the Fourier domain.
    factor : int
        Every `factor`-th pixel is kept in each direction.

    Returns
    -------
    sparse array of shape (2 * (height / factor) * (width / factor), height * width)
        First the rows of the real part of the filtered map, then those of the imaginary part.
    """
    height, width = spectrum.shape
    into = _grid_to_fourier(height, width)
    back = _grid_to_fourier(height // factor, width // factor).conj().T
    filtered = into * (spectrum.reshape(-1, 1) / factor)  # each frequency by its own number
    whole = back @ (_aliases(height, width, factor) @ filtered)
    parts = sparse.vstack([whole.real, whole.imag], format="csr")
    parts.data[np.abs(parts.data) < NEGLIGIBLE * np.abs(parts.data).max(initial=0)] = 0
    parts.eliminate_zeros()
    return parts


def sampling_matrix(spectrum: NDArray, factor: int) -> NDArray:
    """The map from a line of pixels to every `factor`-th of the filtered line, its ends left out.

    Parameters
    ----------
    spectrum : ndarray of shape (size,)
        A real and even filter in the Fourier domain.
    factor : int
        Every `factor`-th pixel is kept.

    Returns
    -------
    ndarray of shape (size / factor - 2, size)
    """
    size = len(spectrum)
    kernel = np.fft.ifft(spectrum).real
    return kernel[(np.arange(factor, size - factor, factor)[:, None] - np.arange(size)) % size]


@lru_cache(maxsize=8)
def _grid_to_fourier(height: int, width: int) -> sparse.csr_array:
    """From trigonometric to Fourier coefficients of maps, each taken row by row; unitary."""
    return sparse.kron(_to_fourier(height), _to_fourier(width), format="csr")


def _to_fourier(size: int) -> sparse.csr_array:
    """From trigonometric to Fourier coefficients, unitary; shape (size, size).

    Columns 0 to size / 2 belong to cosines and column size - k to the sine of frequency k.
    """
    matrix = sparse.lil_array((size, size), dtype=complex)
    matrix[0, 0] = 1
    if size % 2 == 0:
        matrix[size // 2, size // 2] = 1
    k = np.arange(1, (size + 1) // 2)
    matrix[k, k] = matrix[size - k, k] = np.sqrt(0.5)
    matrix[k, size - k] = -1j * np.sqrt(0.5)
    matrix[size - k, size - k] = 1j * np.sqrt(0.5)
    return matrix.tocsr()


def _aliases(height: int, width: int, factor: int) -> sparse.csr_array:
    """Which frequencies become which when every `factor`-th pixel is kept, as zeros and ones."""
    h, w = height // factor, width // factor
    coarse = (np.arange(height) % h)[:, None] * w + np.arange(width) % w
    fine = np.arange(height * width)
    return sparse.csr_array((np.ones(len(fine)), (coarse.ravel(), fine)), shape=(h * w, len(fine)))
