"""Morlet wavelets and the Gaussian low-pass of a scattering transform, in the Fourier domain.

The definition is kymatio's, constants included, so that features agree with those of the field.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, fft2

# pi as the field's filters are normalised by it; the exact one would change features by 1e-4.
_PI = 3.1415
# A filter is made periodic by adding copies up to this many periods away.
_PERIODS = 2


def wavelets(shape: tuple[int, int], scale: int, angles: int) -> NDArray:
    """Spectra of the wavelets of one scale, one per angle.

    psi(u) = g(u) (exp(i xi.u) - beta) with an elongated Gaussian g and beta such that psi has mean
    zero. Its width grows as 2**scale and its frequency xi falls as 2**-scale.

    Parameters
    ----------
    shape : tuple of int
        Height and width of the periodic grid.
    scale : int
        From 0, the finest.
    angles : int
        Number of angles in half a turn.

    Returns
    -------
    ndarray of shape (angles, height, width)
        Real, because psi(-u) is the conjugate of psi(u).
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
    """Spectra of the same filters on a grid that is 2**level times coarser.

    Frequencies that the coarse grid cannot tell apart from lower ones are left out.

    Parameters
    ----------
    spectra : ndarray of shape (..., [height,] width)
        Filters in the Fourier domain.
    level : int
        How many times the number of pixels along an axis is halved.
    axes : int
        How many of the last axes are frequencies.
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
