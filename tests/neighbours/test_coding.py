"""Lossy coding length: worked out by hand, its laws, and what it prefers."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from kscn.data import make_union_of_subspaces
from kscn.neighbours.coding import coding_length


def length(z, labels, k, distance=0.1):
    return coding_length(torch.as_tensor(z), torch.as_tensor(labels), k, distance)


def test_two_pairs_on_a_line_by_hand():
    z = np.array([[0.9], [1.1], [-0.9], [-1.1]])
    # Two clusters of two: variance 0.01, mean of size 1, and log 2 per sample for which it is.
    each = (2 + 1) / 2 * math.log(1 + 0.01 / 0.25) + math.log(1 + 1 / 0.25) / 2
    assert math.isclose(length(z, [0, 0, 1, 1], 2, 0.5), 2 * each + 4 * math.log(2))


@given(st.integers(0, 2**16))
def test_it_does_not_depend_on_rotation_row_order_or_names_of_clusters(seed):
    rng = np.random.default_rng(seed)
    z, labels = rng.normal(size=(40, 4)), rng.integers(3, size=40)
    turned = z @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    order = rng.permutation(40)
    names = rng.permutation(3)
    assert math.isclose(length(z, labels, 3), length(turned[order], names[labels[order]], 3))


def test_an_empty_cluster_takes_nothing():
    z = np.random.default_rng(0).normal(size=(30, 3))
    assert length(z, np.zeros(30, int), 1) == length(z, np.full(30, 2), 4)


def test_crossing_subspaces_are_shorter_than_compact_groups():
    x, y, _ = make_union_of_subspaces(300, 3, 8, 2, noise=0.01, random_state=0)
    nearest = np.linalg.norm(x[:, None] - x[None, :3], axis=2).argmin(axis=1)
    assert length(x, y, 3) < length(x, nearest, 3)
