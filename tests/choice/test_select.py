"""What is taken of the candidates: the best, and the consensus where it is as good."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs, make_circles

from kscn.choice.candidates import LAYOUT, Candidate, vector_spaces
from kscn.choice.select import CONSENSUS, Scored, _taken, select
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn.neighbours.consistency import CONSISTENCY, Consistency, margin

N = 400


def entry(value, method="k-means", dim=0):
    found = Consistency(value, {0: value})
    return Scored(Candidate(np.zeros(N, int), "vectors", method), found, None, dim)


@pytest.mark.parametrize("method", [CONSENSUS, LAYOUT])
@pytest.mark.parametrize("share, common", [(0.9, True), (1.1, False)])
def test_what_several_have_in_common_is_taken_where_it_is_as_good_up_to_chance(
    share, common, method
):
    best = 0.8
    below = entry(best - share * margin(best, N), method)
    assert _taken([entry(best), below], N, False).common == common


@pytest.mark.parametrize("errors, others", [(0.9, False), (1.1, True), (2.9, True)])
def test_subspaces_are_taken_before_others_that_are_as_good(errors, others):
    best = entry(0.8)
    subspaces = entry(0.8 - errors / CONSISTENCY.errors * margin(0.8, N), dim=3)
    assert _taken([best, subspaces], N, others) is subspaces
    assert _taken([best, subspaces, entry(subspaces.value, CONSENSUS)], N, others).common


def test_labels_of_the_sample_itself_are_not_given_up_for_subspaces():
    best, subspaces = entry(0.8), entry(0.8 - 0.5 * margin(0.8, N), dim=3)
    assert _taken([best, subspaces], N, False) is best


def test_layouts_of_joint_graphs_are_tried_where_there_are_enough_samples():
    x, y, _ = make_union_of_subspaces(1000, 4, 12, 3, random_state=0)
    spaces, _ = vector_spaces(x, torch.device("cpu"))
    found = select(spaces, np.arange(len(x)), len(x), 4, 2, 0)
    places = [one.candidate.space for one in found.tried if one.candidate.method == LAYOUT]
    assert sorted(places) == ["3 best spaces", "two best kinds"]
    assert clustering_accuracy(y, found.labels) > 0.97
    fewer = [type(s)(s.name, s.features, s.wide, s.z[:500], s.lines, s.judges) for s in spaces]
    found = select(fewer, np.arange(500), 500, 4, 2, 0)
    assert all(one.candidate.kind != LAYOUT for one in found.tried)


def blobs(seed):
    return make_blobs(600, centers=4, random_state=seed)


def circles(seed):
    return make_circles(600, noise=0.04, factor=0.5, random_state=seed)


def crossing_lines(seed):
    rng = np.random.default_rng(seed)
    y, along = rng.integers(2, size=600), rng.normal(size=(600, 1))
    ways = np.array([[1.0, 0.2], [-0.3, 1.0]])
    return along * ways[y] + 0.02 * rng.normal(size=(600, 2)), y


@pytest.mark.parametrize("draw", [blobs, circles, crossing_lines])
@pytest.mark.parametrize("seed", [1, 3])
def test_groups_in_the_plane_are_found(draw, seed):
    x, y = draw(seed)
    spaces, _ = vector_spaces(x, torch.device("cpu"))
    found = select(spaces, np.arange(len(x)), len(x), len(np.unique(y)), 2, 0)
    assert clustering_accuracy(y, found.labels) > 0.95


def crossing_bodies(seed):
    """Two planes in ten dimensions, with two clumps each; the nearest clump is of the other."""
    rng = np.random.default_rng(seed)
    ways = np.linalg.qr(rng.normal(size=(10, 4)))[0].T.reshape(2, 2, 10)
    y, end = rng.integers(2, size=(2, 400))
    places = rng.normal(scale=[1.0, 0.5], size=(400, 2)) + np.stack([6 * end, 0 * end], axis=1)
    shift = np.array([np.zeros(10), 6 * ways[0, 0] + 0.5 * ways[1, 1]])
    return np.einsum("np,npd->nd", places, ways[y]) + shift[y] + 0.002 * rng.normal(size=10), y


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_flat_clusters_are_told_from_compact_ones(seed):
    x, y = crossing_bodies(seed)
    spaces, _ = vector_spaces(x, torch.device("cpu"))
    found = select(spaces, np.arange(len(x)), len(x), 2, 2, 0)
    assert clustering_accuracy(y, found.labels) > 0.97
    assert found.best.candidate.method.endswith("shortest code")


def test_one_sample_far_away_does_not_make_the_others_flat():
    x, _, _ = make_union_of_subspaces(300, 3, 8, 2, noise=0.05, random_state=0)
    x[0] = 1e5
    spaces, _ = vector_spaces(x, torch.device("cpu"))
    found = select(spaces, np.arange(len(x)), len(x), 3, 2, 0)
    assert not found.best.candidate.method.endswith("shortest code")
