"""The filters of scattering, and filtering by real matrices, against the complex FFT."""

import numpy as np
import pytest

from kscn.features import filters
from kscn.features.filters import filter_matrix, sampling_matrix, trigonometric_basis

RNG = np.random.default_rng(0)


def test_lower_resolution_keeps_the_lowest_frequencies_on_both_sides():
    line = np.arange(16)
    assert filters.lower_resolution(line, 0).tolist() == line.tolist()
    assert filters.lower_resolution(line, 1).tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    assert filters.lower_resolution(line, 2).tolist() == [0, 1, 14, 15]
    grid = line[:8, None] * 100 + line
    assert filters.lower_resolution(grid, 1, axes=2).tolist() == [
        [100 * y + x for x in (0, 1, 2, 3, 12, 13, 14, 15)] for y in (0, 1, 6, 7)
    ]


@pytest.mark.parametrize(("shape", "J", "L"), [((48, 48), 3, 8), ((16, 24), 2, 5), ((6, 8), 1, 4)])
def test_filters_are_those_of_kymatio(kymatio, shape, J, L):
    from kymatio.scattering2d.filter_bank import filter_bank

    bank = filter_bank(*shape, J, L)
    for j in range(J):
        spectra = filters.wavelets(shape, j, L)
        for turn in range(L):
            for level, expected in enumerate(bank["psi"][j * L + turn]["levels"]):
                ours = filters.lower_resolution(spectra[turn], level, axes=2)
                np.testing.assert_allclose(ours, expected, atol=2e-6)
    ours = np.outer(*(filters.low_pass(size, J) for size in shape))
    for level, expected in enumerate(bank["phi"]["levels"]):
        lower = filters.lower_resolution(ours, level, axes=2)
        np.testing.assert_allclose(lower, expected, atol=2e-6)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 12])
def test_the_basis_is_orthonormal_and_real(size):
    basis = trigonometric_basis(size)
    assert basis.dtype == float
    np.testing.assert_allclose(basis @ basis.T, np.eye(size), atol=1e-12)


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
