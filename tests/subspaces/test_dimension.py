"""Dimensions from spectra whose answer can be worked out by hand."""

import pytest
import torch

from kscn.subspaces.dimension import energy_dims


@pytest.mark.parametrize(
    ("spectrum", "dimension"),
    [
        # Three strong directions, then a drop by 100: 98 % of the energy.
        ([10, 10, 10, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], 3),
        # Noise-free: the drop right after all energy is held still counts.
        ([1, 1, 0, 0], 2),
        ([7, 0, 0], 1),
        # One direction holds 97 %.
        ([100, 1, 1, 1], 1),
        # Halving has no clear drop: 50, 75, 87.5, 93.75 % of the energy, so four reach 90 %.
        ([512, 256, 128, 64, 32, 16, 8, 4, 2, 2], 4),
        # The drop by 5 comes at 72 % of the energy, and what follows goes on falling: it does not
        # count, and three directions reach 90 %.
        ([50, 10, 5, 2.5, 1.2, 0.6, 0.3], 3),
        # The same drop to a level that lasts: a line in strong noise.
        ([50, 10, 10, 8, 8, 8, 6], 1),
        # Too little energy before such a drop, 27 %.
        ([30, 10, 10, 10, 10, 10, 10, 10, 10], 8),
        # The drop by 11 at 99.6 % is the last one that counts, not the one by 4e5 that follows it.
        ([50, 25, 12, 8, 4.5, 0.4, 1e-6, 1e-6], 5),
        # Of two clear drops the steeper: by 4 after two (80 %), by 5 after four (99 %).
        ([40, 40, 10, 8, 1.6, 0.4], 4),
        ([40, 40, 4, 2, 1.6, 1.5], 2),
        # Never all of the space.
        ([1, 1], 1),
    ],
)
def test_worked_out_spectra(spectrum, dimension):
    found = energy_dims(torch.tensor([spectrum], dtype=torch.float64))
    assert found.tolist() == [dimension]


def test_each_spectrum_is_judged_by_itself_and_its_scale_does_not_matter():
    spectra = torch.tensor([[9, 9, 0.1, 0.1, 0.1], [9, 0.1, 0.1, 0.1, 0.1], [9, 9, 9, 9, 0.01]])
    assert energy_dims(spectra).tolist() == [2, 1, 4]
    assert energy_dims(1e-12 * spectra).tolist() == [2, 1, 4]
    assert energy_dims(1e12 * spectra).tolist() == [2, 1, 4]


def test_the_answer_lies_between_one_and_all_but_one():
    generator = torch.Generator().manual_seed(0)
    spectra = torch.rand(200, 6, generator=generator).sort(dim=1, descending=True).values
    spectra[0] = 0
    found = energy_dims(spectra)
    assert found.min() >= 1
    assert found.max() <= 5
