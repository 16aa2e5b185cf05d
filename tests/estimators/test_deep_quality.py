"""Bounds on quality: slow."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from kscn import KSCN
from kscn.data import load
from kscn.metrics import clustering_accuracy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1])
def test_digits_are_clustered_without_labels(seed):
    digits = load("digits")
    model = KSCN.from_preset("tuned", 10, dataset="digits", random_state=seed).fit(digits.samples)
    assert clustering_accuracy(digits.labels, model.labels_) >= 0.90


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_training_clusters_better_than_the_start(update):
    X, y = load_digits(return_X_y=True)
    X = X.reshape(-1, 8, 8).astype(np.float32)
    end = KSCN.from_preset("tuned", 10, dataset="digits", update=update, random_state=0)
    start = clone(end).set_params(epochs=0).fit(X)
    end.fit(X)
    assert clustering_accuracy(y, end.labels_) > clustering_accuracy(y, start.labels_)


SHORT_OF_IT = pytest.mark.xfail(
    strict=True, reason="79.0 from the neighbour graph, better than drawn starts elsewhere: LOG.md"
)


@pytest.mark.parametrize(
    ("n", "vectors", "least"),
    [(500, False, 0.8), pytest.param(1797, True, 0.85, marks=SHORT_OF_IT)],
)
def test_the_defaults_cluster_digits_as_images_and_as_vectors(n, vectors, least):
    X, y = load_digits(return_X_y=True)
    X = X[:n] if vectors else X[:n].reshape(-1, 8, 8)
    model = KSCN(10, random_state=0).fit(X.astype(np.float32))
    assert clustering_accuracy(y[:n], model.labels_) > least
