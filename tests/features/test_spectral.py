"""Filters and transforms as real matrices, against the complex FFT."""

import numpy as np
import pytest

from kscn.features.spectral import filter_matrix, sampling_matrix, trigonometric_basis

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 12])
def test_the_basis_is_orthonormal_and_real(size):
    basis = trigonometric_basis(size)
    assert basis.dtype == float
    np.testing.assert_allclose(basis @ basis.T, np.eye(size), atol=1e-12)


def test_the_basis_consists_of_cosines_then_sines():
    basis = trigonometric_basis(8)
    angle = 2 * np.pi * np.arange(8) / 8
    np.testing.assert_allclose(basis[:, 2], np.cos(2 * angle) / 2, atol=1e-12)
    np.testing.assert_allclose(basis[:, 7], np.sin(angle) / 2, atol=1e-12)


@pytest.mark.parametrize(("shape", "factor"), [((8, 12), 1), ((8, 12), 2), ((16, 8), 4)])
def test_a_filter_matrix_filters_and_subsamples_like_the_fft(shape, factor):
    x, spectrum = RNG.standard_normal(shape), RNG.standard_normal(shape)
    expected = np.fft.ifft2(np.fft.fft2(x) * spectrum)[::factor, ::factor]
    coefficients = trigonometric_basis(shape[0]).T @ x @ trigonometric_basis(shape[1])
    found = filter_matrix(spectrum, factor) @ coefficients.ravel()
    y, u = (trigonometric_basis(size // factor) for size in shape)
    re, im = (y @ part @ u.T for part in found.reshape(2, *expected.shape))
    # Entries below a millionth of the largest are left out.
    np.testing.assert_allclose(re + 1j * im, expected, atol=1e-4)


def test_a_narrow_filter_has_few_entries():
    spectrum = np.zeros((32, 32))
    spectrum[3, 4] = 1
    matrix = filter_matrix(spectrum, 4)
    # One wave: cosine and sine along each axis, in the real and in the imaginary part.
    assert 4 <= matrix.nnz <= 16
    assert filter_matrix(np.zeros((8, 8)), 2).nnz == 0


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_a_sampling_matrix_filters_and_leaves_out_the_ends(factor):
    x, kernel = RNG.standard_normal(24), RNG.standard_normal(13)
    spectrum = np.concatenate([kernel, kernel[11:0:-1]])  # even
    expected = np.fft.ifft(np.fft.fft(x) * spectrum).real[::factor][1:-1]
    np.testing.assert_allclose(sampling_matrix(spectrum, factor) @ x, expected, atol=1e-12)
