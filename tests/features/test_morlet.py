"""The filters of scattering: Morlet wavelets and a Gaussian, in the Fourier domain."""

import numpy as np
import pytest

from kscn.features import morlet


def spatial(spectrum):
    return np.fft.ifft2(spectrum)


def test_wavelets_are_real_in_the_fourier_domain_and_have_mean_zero():
    spectra = morlet.wavelets((24, 40), 1, 6)
    assert spectra.shape == (6, 24, 40)
    assert np.abs(spectra[:, 0, 0]).max() < 1e-12
    for psi in map(spatial, spectra):
        mirrored = np.roll(psi[::-1, ::-1], 1, axis=(0, 1))  # psi(-u)
        np.testing.assert_allclose(mirrored, psi.conj(), atol=1e-12)


def test_a_wavelet_answers_most_to_waves_of_its_frequency_and_direction():
    size = 64
    for scale in (0, 1, 2):
        spectra = morlet.wavelets((size, size), scale, 8)
        expected = 0.75 / 2**scale * size / 2
        for turn, spectrum in enumerate(spectra):
            y, x = np.unravel_index(spectrum.argmax(), spectrum.shape)
            y, x = (k - size if k > size // 2 else k for k in (y, x))
            angle = (3 - turn) * np.pi / 8
            # The nearest frequencies on the grid; mean zero moves the peak outwards a little.
            assert y == pytest.approx(expected * np.cos(angle), abs=1.5)
            assert x == pytest.approx(expected * np.sin(angle), abs=1.5)


def test_a_scale_further_the_same_wavelet_is_twice_as_large():
    fine, coarse = (morlet.wavelets((128, 128), j, 8) for j in (1, 2))
    np.testing.assert_allclose(coarse[:, :16, :16], fine[:, :32:2, :32:2], atol=1e-3)


def test_the_low_pass_keeps_the_mean_and_smooths_by_its_width():
    spectrum = morlet.low_pass(64, 3)
    assert spectrum[0] == pytest.approx(1, abs=1e-4)  # the field's pi is 3.1415
    sigma = 0.8 * 4
    frequency = 2 * np.pi * np.arange(10) / 64
    np.testing.assert_allclose(spectrum[:10], np.exp(-((sigma * frequency) ** 2) / 2), atol=1e-4)


def test_lower_resolution_keeps_the_lowest_frequencies_on_both_sides():
    line = np.arange(16)
    assert morlet.lower_resolution(line, 0).tolist() == line.tolist()
    assert morlet.lower_resolution(line, 1).tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    assert morlet.lower_resolution(line, 2).tolist() == [0, 1, 14, 15]
    grid = line[:8, None] * 100 + line
    assert morlet.lower_resolution(grid, 1, axes=2).tolist() == [
        [100 * y + x for x in (0, 1, 2, 3, 12, 13, 14, 15)] for y in (0, 1, 6, 7)
    ]


@pytest.mark.parametrize(("shape", "J", "L"), [((48, 48), 3, 8), ((16, 24), 2, 5), ((6, 8), 1, 4)])
def test_filters_are_those_of_kymatio(kymatio, shape, J, L):
    from kymatio.scattering2d.filter_bank import filter_bank

    bank = filter_bank(*shape, J, L)
    for j in range(J):
        spectra = morlet.wavelets(shape, j, L)
        for turn in range(L):
            for level, expected in enumerate(bank["psi"][j * L + turn]["levels"]):
                ours = morlet.lower_resolution(spectra[turn], level, axes=2)
                np.testing.assert_allclose(ours, expected, atol=2e-6)
    ours = np.outer(*(morlet.low_pass(size, J) for size in shape))
    for level, expected in enumerate(bank["phi"]["levels"]):
        lower = morlet.lower_resolution(ours, level, axes=2)
        np.testing.assert_allclose(lower, expected, atol=2e-6)
