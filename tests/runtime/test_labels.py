"""The nearest subspace of every sample, and the order that clusters are numbered in."""

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.errors import InputError
from kscn.runtime.blocks import Blocks
from kscn.runtime.labels import assign, canonical_order, in_order
from kscn.subspaces import Subspaces


def blocks(X, batch_size=16384):
    return Blocks(as_source(X), torch.float64, torch.device("cpu"), batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_the_nearest_line_and_the_distance_to_it(batch_size):
    X = np.random.default_rng(0).standard_normal((40, 3))
    axes = Subspaces(torch.eye(3, dtype=torch.float64)[:, :, None])
    labels, distance = assign(blocks(X, batch_size), axes)[:2]
    np.testing.assert_array_equal(labels, np.abs(X).argmax(axis=1))
    np.testing.assert_allclose(distance, (X**2).sum(axis=1) - (X**2).max(axis=1))


def test_samples_that_are_no_numbers_are_refused():
    X = np.ones((20, 3))
    X[19, 2] = np.nan
    with pytest.raises(InputError, match="contains NaN"):
        assign(blocks(X, 5), Subspaces(torch.eye(3, dtype=torch.float64)[:, :, None]))


def test_clusters_are_ordered_by_size_then_by_their_first_sample():
    labels = np.array([3, 1, 1, 0, 3, 4, 4, 4])
    assert canonical_order(labels, 6).tolist() == [4, 3, 1, 0, 2, 5]


def test_weights_count_as_size():
    labels = np.array([0, 0, 0, 1, 2])
    weights = torch.tensor([1.0, 1.0, 1.0, 5.0, 3.0], dtype=torch.float64)
    assert canonical_order(labels, 3, weights).tolist() == [1, 0, 2]


def test_known_labels_save_a_pass_and_change_nothing():
    X = np.random.default_rng(0).standard_normal((60, 3)) * [1, 3, 2]
    axes = Subspaces(torch.eye(3, dtype=torch.float64)[:, :, None])
    passes = []

    class Counted(Blocks):
        def __iter__(self):
            passes.append(1)
            return super().__iter__()

    counted = Counted(as_source(X), torch.float64, torch.device("cpu"))
    for labels, count in ((None, 2), (assign(blocks(X), axes).labels, 1)):
        passes.clear()
        found = in_order(counted, axes, labels=labels)
        assert len(passes) == count
        assert found.order.tolist() == [1, 2, 0]
        np.testing.assert_array_equal(found.labels, assign(blocks(X), found.subspaces).labels)
        assert (np.diff(np.bincount(found.labels)) <= 0).all()
        assert found.inertia == pytest.approx((X**2).sum() - (X**2).max(axis=1).sum())
