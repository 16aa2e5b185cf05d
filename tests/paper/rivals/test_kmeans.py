"""k-means: scikit-learn's result, the best of its starts."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from kscn.data import as_source
from kscn.metrics import adjusted_rand
from kscn_paper.rivals.base import best_of
from kscn_paper.rivals.kmeans import PixelKMeans, nearest_centre

X, Y = make_blobs(300, 5, centers=6, cluster_std=2.0, random_state=3)


def test_many_starts_find_what_scikit_learn_finds():
    ours = PixelKMeans(6, random_state=0).fit(X)
    theirs = KMeans(6, n_init=50, random_state=1).fit(X)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-3)
    assert adjusted_rand(theirs.labels_, ours.labels_) > 0.97


def test_the_lowest_objective_wins():
    best = best_of(lambda seed: KMeans(6, n_init=1, random_state=seed).fit(X), 12, 0)
    seeds = np.random.RandomState(0).randint(2**31 - 1, size=12)
    alone = [KMeans(6, n_init=1, random_state=int(seed)).fit(X).inertia_ for seed in seeds]
    assert best.inertia_ == pytest.approx(min(alone))
    assert min(alone) < max(alone)


def test_centres_are_means_of_their_members_and_numbered_by_size():
    model = PixelKMeans(6, tol=0, random_state=0).fit(X)
    for label, centre in enumerate(model.cluster_centers_):
        np.testing.assert_allclose(X[model.labels_ == label].mean(axis=0), centre, atol=1e-8)
    sizes = np.bincount(model.labels_)
    assert (np.diff(sizes) <= 0).all()


def test_bytes_and_images_are_taken_as_they_are():
    images = np.clip(X.reshape(300, 1, 5) * 8 + 120, 0, 255).astype(np.uint8)
    flat = images.reshape(300, 5).astype(np.float64)
    np.testing.assert_array_equal(
        PixelKMeans(6, random_state=0).fit_predict(images),
        PixelKMeans(6, random_state=0).fit_predict(flat),
    )


def test_the_nearest_centre_is_found_in_any_precision():
    rng = np.random.default_rng(0)
    # Expanding the square would leave nothing of the distances.
    far, centres = (rng.standard_normal((n, 16)).astype(np.float32) * 4 + 1e6 for n in (60, 3))
    labels, distance = nearest_centre(as_source(far), centres)
    apart = ((far[:, None].astype(np.float64) - centres.astype(np.float64)) ** 2).sum(axis=2)
    np.testing.assert_array_equal(labels, apart.argmin(axis=1))
    np.testing.assert_allclose(distance, apart.min(axis=1))
