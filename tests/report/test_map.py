"""The map: framed, repeatable, faithful to neighbours, and possible without openTSNE."""

import sys

import numpy as np
import pytest

from kscn.report.map import flatten


def blobs(n=60, dim=80):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    return 20 * rng.standard_normal((3, dim))[labels] + rng.standard_normal((n, dim)), labels


def purity(places, labels):
    """Share of points whose nearest neighbour on the map is of their group."""
    far = ((places[:, None] - places) ** 2).sum(axis=2)
    np.fill_diagonal(far, np.inf)
    return (labels[far.argmin(axis=1)] == labels).mean()


def test_tsne_keeps_groups_together_and_repeats():
    pytest.importorskip("openTSNE")
    points, labels = blobs()
    places, method = flatten(points)
    assert method == "t-SNE"
    assert purity(places, labels) == 1
    assert np.abs(places).max() == pytest.approx(1)
    assert (flatten(points)[0] == places).all()


def test_without_opentsne_the_main_directions_are_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "openTSNE", None)  # as if it were not installed
    points, _ = blobs()
    places, method = flatten(points)
    assert method == "PCA"
    u, s, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    for axis in range(2):
        agreement = np.corrcoef(places[:, axis], u[:, axis] * s[axis])[0, 1]
        assert abs(agreement) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("points", [np.zeros((50, 4)), np.ones((1, 3)), np.arange(40.0)[:, None]])
def test_degenerate_points_still_have_places(points):
    places, _ = flatten(points)
    assert places.shape == (len(points), 2)
    assert np.isfinite(places).all()
    assert np.abs(places).max() <= 1
