"""The measure knows better clusterings from worse ones, and the consensus outvotes accidents."""

import numpy as np
import torch

from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn.neighbours import View, consensus, nearest, self_consistency


def union(seed=0):
    X, y, _ = make_union_of_subspaces(300, 3, 12, 2, noise=0.05, random_state=seed)
    z = torch.from_numpy(X).float()
    return View(z, nearest(z, 10, "absolute cosine").index), torch.from_numpy(y).long()


def spoilt(y, share, seed=0):
    rng = np.random.default_rng(seed)
    labels = y.clone()
    rows = torch.from_numpy(rng.permutation(len(y))[: int(share * len(y))])
    labels[rows] = torch.from_numpy(rng.integers(0, 3, len(rows)))
    return labels


def test_the_more_labels_are_spoilt_the_lower_the_value():
    view, y = union()
    values = [self_consistency([view], spoilt(y, share), 3).value for share in (0, 0.2, 0.5, 1)]
    assert values[0] > 0.9 and values[3] < 0.25
    assert all(np.diff(values) < 0)


def test_names_of_clusters_and_the_order_of_samples_do_not_matter():
    view, y = union()
    plain = self_consistency([view], y, 3)
    named = self_consistency([view], (y + 1) % 3, 3)
    assert plain.value == named.value
    mixed = torch.from_numpy(np.random.default_rng(1).permutation(len(y)))
    z = view.z[mixed]
    other = View(z, nearest(z, 10, "absolute cosine").index)
    assert abs(self_consistency([other], y[mixed], 3).value - plain.value) < 0.03


def test_the_two_views_count_in_which_most_neighbours_agree():
    view, y = union()
    noise = torch.randn(view.z.shape, generator=torch.Generator().manual_seed(0))
    blind = View(noise, nearest(noise, 10).index)
    both = self_consistency([view, blind, view], y, 3)
    assert both.value == self_consistency([view], y, 3).value
    assert both.views.keys() == {0, 2}
    assert self_consistency([blind], y, 3).value < 0.3


def test_points_are_known_by_their_means_where_subspaces_are_not():
    rng = np.random.default_rng(0)
    # Three clusters on one line through the origin: a subspace holds all of them.
    y = torch.from_numpy(rng.integers(0, 3, 300))
    z = torch.from_numpy(rng.normal(0, 0.1, (300, 6))).float()
    z[:, 0] += 3 * y
    view = View(z, nearest(z, 10).index)
    assert self_consistency([view], y, 3).value > 0.95
    assert self_consistency([view], spoilt(y, 0.5), 3).value < 0.5


def test_a_few_members_in_many_dimensions_still_find_back():
    rng = np.random.default_rng(0)
    y = torch.arange(80) % 8
    z = torch.from_numpy(rng.normal(0, 1, (80, 60)) + 2 * rng.normal(0, 1, (8, 60))[y]).float()
    assert self_consistency([View(z, nearest(z, 10).index)], y, 8).value > 0.9


def test_an_empty_cluster_lowers_the_value():
    view, y = union()
    assert self_consistency([view], y, 4).value < 0.8 * self_consistency([view], y, 3).value


def test_what_candidates_have_in_common_is_better_than_each():
    _, y = union()
    candidates = [spoilt(y, 0.4, seed).numpy() for seed in range(9)]
    each = max(clustering_accuracy(y.numpy(), one) for one in candidates)
    together = consensus(candidates, [0.9] * 9, 3)
    assert clustering_accuracy(y.numpy(), together) > each + 0.1


def test_candidates_of_low_value_have_no_say():
    _, y = union()
    wrong = [spoilt(y, 1, seed).numpy() for seed in range(5)]
    together = consensus([y.numpy(), *wrong], [0.9, *[0.4] * 5], 3)
    assert clustering_accuracy(y.numpy(), together) == 1


def test_tight_clusters_far_from_the_origin_find_back():
    """Products of such samples, less those of their mean, are rounding and nothing else."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = np.hstack([50 * np.eye(3)[y] + 0.01 * rng.normal(size=(90, 3)), np.ones((90, 1))])
    for far in (0, 1000):
        z = torch.from_numpy(x + far * np.array([1, 1, 1, 0])).float()
        view = View(z, nearest(z, 5).index)
        assert self_consistency([view], torch.from_numpy(y), 3).value == 1.0
