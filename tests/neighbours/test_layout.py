"""A layout of the neighbour graph: weights, forces, and the clusters that come apart in it."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from kscn.metrics import clustering_accuracy
from kscn.neighbours import (
    Neighbours,
    layout,
    layout_clusters,
    layouts,
    membership_graph,
    nearest,
)
from kscn.neighbours.layout import _good_ends


def strips(each=200, seed=0):
    """Two long groups side by side, which k-means cuts across."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], each)
    x = np.stack([rng.uniform(0, 6, 2 * each), 1.2 * y + 0.1 * rng.normal(size=2 * each)], axis=1)
    return torch.from_numpy(x).float(), y


def blobs(n=300, k=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return torch.from_numpy(8 * np.eye(5)[y] + rng.normal(size=(n, 5))).float(), y


def test_long_groups_come_apart():
    z, y = strips()
    k_means = KMeans(2, n_init=5, random_state=0).fit_predict(z.numpy())
    assert clustering_accuracy(y, k_means) < 0.7
    assert clustering_accuracy(y, layout_clusters([nearest(z, 15)], [[0]], 2)[0]) > 0.99


def test_linked_samples_end_near_each_other():
    z, y = blobs()
    (places,) = layouts([membership_graph(nearest(z, 10), 10)])
    assert places.shape == (300, 10)
    centre = np.stack([places[y == c].mean(axis=0) for c in range(3)])
    apart = ((places[:, None] - centre) ** 2).sum(axis=2)
    assert (apart.argmin(axis=1) == y).all()


def test_weights_of_a_sample_add_up_to_the_logarithm_of_their_number():
    z, _ = blobs()
    near = nearest(z, 8)
    found = membership_graph(near, 8).toarray()
    np.testing.assert_allclose(found, found.T)
    assert found.min() >= 0 and found.max() == pytest.approx(1.0)
    # By itself: either end says so, 1 - (1 - a)(1 - b) = w; here b is 0 where only one end chose.
    index = near.index.numpy()
    for row in range(0, 300, 37):
        one_sided = [j for j in index[row] if row not in index[j]]
        apart = np.sqrt(((z[row] - z[one_sided]) ** 2).sum(dim=1).numpy())
        order = np.argsort(apart)
        assert (np.diff(found[row, one_sided][order]) <= 1e-9).all()
    # Nobody else chose the last node, so its weights are its own.
    line = torch.tensor([[0.0], [1.0], [2.0], [3.0], [9.0]])
    alone = membership_graph(nearest(line, 3), 3).toarray()[4]
    assert alone.sum() == pytest.approx(np.log2(3), rel=1e-6)
    assert alone[3] == pytest.approx(1.0)


def test_scale_changes_nothing_and_the_seed_decides():
    z, _ = blobs()
    first, same, larger = (
        layout_clusters([nearest(x, 10)], [[0]], 3, seed=1)[0] for x in (z, z, 4 * z)
    )
    assert (first == same).all()
    assert clustering_accuracy(first, larger) == 1.0


def test_the_callers_random_numbers_stay_as_they_are():
    z, _ = blobs(60)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    layout_clusters([nearest(z, 5)], [[0]], 3)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    "z",
    [
        torch.zeros(40, 3),  # all the same
        torch.cat([torch.zeros(20, 3), torch.ones(20, 3)]),  # two piles
        torch.cat([torch.randn(39, 3), 1e6 * torch.ones(1, 3)]),  # one far from all others
        torch.randn(4, 2),  # hardly any
    ],
)
def test_degenerate_samples_have_a_layout(z):
    near = nearest(z, 10)
    (places,) = layouts([membership_graph(near, near.index.shape[1])])
    assert np.isfinite(places).all()
    assert layout_clusters([near], [[0]], 2)[0].shape == (len(z),)


def test_a_single_neighbour_is_enough():
    index = torch.arange(30)[:, None].roll(1, 0)
    graph = membership_graph(Neighbours(index, torch.zeros(30, 1)), 1)
    assert np.isfinite(layouts([graph])[0]).all()


def test_graphs_beside_each_other_do_not_meet():
    z, y = blobs()
    far, other = z + 100, strips(150)[0]
    first, second = layout_clusters([nearest(far, 10), nearest(other, 10)], [[0], [1]], 3)
    assert clustering_accuracy(y, first) == 1.0
    assert clustering_accuracy(y, second) < 0.6
    places = layouts([membership_graph(nearest(x, 10), 10) for x in (far, other)])
    assert [one.shape for one in places] == [(300, 10)] * 2


def test_a_description_of_chance_among_others_does_no_harm():
    z, y = blobs()
    chance = torch.from_numpy(np.random.default_rng(1).normal(size=(300, 5))).float()
    several = [nearest(z, 10), nearest(2 * z + 1, 10), nearest(chance, 10)]
    together, by_chance = layout_clusters(several, [range(3), [2]], 3)
    assert clustering_accuracy(y, together) > 0.97
    assert clustering_accuracy(y, by_chance) < 0.6


def triangle(side, third, each=40):
    """Three tight groups: two of them `side` apart, the last one `third` from both."""
    height = np.sqrt(third**2 - side**2 / 4)
    corners = np.array([[0.0, 0.0], [side, 0.0], [side / 2, height]])
    y = np.repeat(np.arange(3), each)
    return corners[y] + 1e-3 * np.random.default_rng(0).normal(size=(3 * each, 2)), y


def merged(labels, y):
    """Which pairs of the three groups are one cluster."""
    first = [labels[y == c][0] for c in range(3)]
    return [pair for pair in ((0, 1), (0, 2), (1, 2)) if first[pair[0]] == first[pair[1]]]


def test_all_ends_of_k_means_that_are_as_good_are_found_once_each():
    # Merging two groups leaves side^2 / 4 of each member's square: 1 and 1.02^2 are within 5 %.
    x, y = triangle(1.0, 1.02)
    ends = _good_ends(x, 2, 0)
    found = [merged(labels, y) for labels in ends]
    assert found[0] == [(0, 1)]  # the lowest first
    # Both others have the same sum, so either of them stands for the two.
    assert len(found) == 2 and found[1] in ([(0, 2)], [(1, 2)])


def test_an_end_of_k_means_that_is_clearly_higher_is_none():
    x, y = triangle(1.0, 1.1)  # 1.21 times the lowest sum
    assert [merged(labels, y) for labels in _good_ends(x, 2, 0)] == [[(0, 1)]]


@pytest.mark.parametrize(("gain", "other"), [(0.2, True), (0.01, False)])
def test_an_end_that_is_as_good_is_taken_where_the_measure_is_clearly_higher(
    monkeypatch, gain, other
):
    # Three standard errors of a share of 0.5 to 0.7 among 300 are 0.08.
    z, _ = blobs()
    lowest, second = np.zeros(300, dtype=int), np.ones(300, dtype=int)
    monkeypatch.setattr(layout, "_good_ends", lambda *_: [lowest, second])
    near = nearest(z, 10)

    def measure(labels):
        return 0.5 + gain * float(labels[0])

    (taken,) = layout_clusters([near], [[0]], 3, measure=measure)
    assert taken is (second if other else lowest)
    assert layout_clusters([near], [[0]], 3)[0] is lowest
