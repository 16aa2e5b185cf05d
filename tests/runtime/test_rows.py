"""Samples of rows by chance."""

import tracemalloc

import numpy as np

from kscn.runtime.rows import sample_rows


def test_a_bounded_sample_of_any_number_of_rows_takes_bounded_memory():
    tracemalloc.start()
    found = sample_rows(10**12, 1000, 0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10**6
    assert len(np.unique(found)) == 1000 and (np.diff(found) > 0).all()
    assert np.ptp(found) > 0.9 * 10**12
    np.testing.assert_array_equal(sample_rows(5, 10, 0), np.arange(5))
