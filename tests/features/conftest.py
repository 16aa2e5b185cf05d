"""kymatio's torch frontend as the oracle for scattering, and a definition written out for it."""

import numpy as np
import pytest
import scipy.special


@pytest.fixture(scope="session")
def kymatio():
    """The class ScatteringTorch2D of kymatio 0.3.0, where it is installed."""
    # It imports a function that SciPy has dropped, for transforms that are not used here.
    if not hasattr(scipy.special, "sph_harm"):
        scipy.special.sph_harm = None
    frontend = pytest.importorskip("kymatio.scattering2d.frontend.torch_frontend")
    return frontend.ScatteringTorch2D


def morlet(shape, sigma, angle, frequency, slant):
    """One wavelet in space, summed over its periods, pixel by pixel."""
    psi = np.zeros(shape, dtype=complex)
    envelope = np.zeros(shape)
    direction = np.array([np.cos(angle), np.sin(angle)])
    normal = np.array([-np.sin(angle), np.cos(angle)])
    for period_y in range(-2, 3):
        for period_x in range(-2, 3):
            for y in range(shape[0]):
                for x in range(shape[1]):
                    u = np.array([y + period_y * shape[0], x + period_x * shape[1]])
                    square = (direction @ u) ** 2 + slant**2 * (normal @ u) ** 2
                    g = np.exp(-square / (2 * sigma**2)) * slant / (2 * 3.1415 * sigma**2)
                    envelope[y, x] += g
                    psi[y, x] += g * np.exp(1j * frequency * (direction @ u))
    if frequency == 0:
        return psi
    return psi - psi.sum() / envelope.sum() * envelope


def convolve(x, kernel):
    """Periodic convolution by adding up shifted copies."""
    out = np.zeros(x.shape, dtype=complex)
    for y in range(x.shape[0]):
        for u in range(x.shape[1]):
            out += kernel[y, u] * np.roll(x, (y, u), axis=(0, 1))
    return out


@pytest.fixture(scope="session")
def scattering_by_definition():
    """S(image, J, L): maps (n_maps, h', w'), every convolution at full resolution.

    Without the subsampling of the fast algorithms there is no aliasing, so agreement is to the
    accuracy of that approximation and not to rounding.
    """

    def scatter(image, J, L):
        padded = [(size // 2**J + 2) * 2**J for size in image.shape]
        margins = [
            ((to - size) // 2, to - size - (to - size) // 2)
            for size, to in zip(image.shape, padded, strict=True)
        ]
        x = np.pad(image, margins, mode="reflect")
        phi = morlet(x.shape, 0.8 * 2 ** (J - 1), 0, 0, 1)
        psi = [
            [
                morlet(
                    x.shape, 0.8 * 2**j, (L // 2 - 1 - t) * np.pi / L, 0.75 * np.pi / 2**j, 4 / L
                )
                for t in range(L)
            ]
            for j in range(J)
        ]

        def average(u):
            return convolve(u, phi).real[:: 2**J, :: 2**J][1:-1, 1:-1]

        first, second = [], []
        for j1 in range(J):
            for one in psi[j1]:
                u1 = np.abs(convolve(x, one))
                first.append(average(u1))
                for j2 in range(j1 + 1, J):
                    second += [average(np.abs(convolve(u1, two))) for two in psi[j2]]
        return np.array([average(x), *first, *second])

    return scatter
