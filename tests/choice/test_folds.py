"""Folds by chance: the same everywhere, whatever the order of the file."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn.choice.folds import folds


def splitmix(state):
    """The reference, in Python's integers."""
    mask = 2**64 - 1
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


@given(st.integers(0, 2**62), st.integers(0, 2**63 - 1), st.integers(1, 1000))
@settings(max_examples=50, deadline=None)
def test_a_fold_is_that_of_splitmix64(row, seed, count):
    bits = splitmix((splitmix(seed) + row * 0x9E3779B97F4A7C15) % 2**64) >> 32
    assert int(folds(torch.tensor([row]), seed, count)) == bits * count >> 32


@pytest.mark.parametrize("period", range(2, 31))
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_that_cycle_through_classes_have_all_of_them_in_every_fold(period, seed):
    rows = torch.arange(1000 * period)
    found = folds(rows, seed, 5)
    table = torch.bincount(found * period + rows % period, minlength=5 * period).view(5, period)
    # 200 on average, with a standard deviation of 13.
    assert table.min() > 200 - 5 * 13 and table.max() < 200 + 5 * 13


def test_neighbours_and_seeds_are_independent():
    rows = torch.arange(200_000)
    one, other = folds(rows, 0, 5), folds(rows, 1, 5)
    for a, b in [(one[:-1], one[1:]), (one[:-5], one[5:]), (one[:-10], one[10:]), (one, other)]:
        joint = torch.bincount(5 * a + b, minlength=25).double() / len(a)
        np.testing.assert_allclose(joint, 1 / 25, atol=5 * (0.04 / len(a)) ** 0.5)


def test_a_part_of_the_rows_is_shared_out_as_the_whole():
    rows = torch.arange(1000)
    assert torch.equal(folds(rows, 3, 5)[400:], folds(rows[400:], 3, 5))
