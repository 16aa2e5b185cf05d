"""Bounds on quality: slow."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from kscn import KSCN
from kscn.data import load
from kscn.estimators import presets
from kscn.metrics import clustering_accuracy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1])
def test_digits_are_clustered_without_labels(seed):
    digits = load("digits")
    params = presets.parameters("tuned", "kscn-s", "digits", (8, 8))
    model = KSCN(10, random_state=seed, **params).fit(digits.samples)
    assert clustering_accuracy(digits.labels, model.labels_) >= 0.90


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_training_clusters_better_than_the_start(update):
    X, y = load_digits(return_X_y=True)
    X = X.reshape(-1, 8, 8).astype(np.float32)
    params = presets.parameters(
        "tuned", "kscn-s" if update == "svd" else "kscn-g", "digits", (8, 8)
    )
    start = KSCN(10, random_state=0, **params | {"epochs": 0}).fit(X)
    end = KSCN(10, random_state=0, **params).fit(X)
    assert clustering_accuracy(y, end.labels_) > clustering_accuracy(y, start.labels_)
