"""Clusters of more samples than candidates are made from."""

import numpy as np
import short
import torch
from sklearn.datasets import make_blobs

from kscn.choice import choose, enlarge
from kscn.metrics import clustering_accuracy
from kscn.runtime.rows import sample_rows

K = 2


def tensors(x):
    return [torch.from_numpy(x), torch.from_numpy(2 * x)]


def test_a_layout_of_more_samples_mends_what_is_known_of_few():
    x, y = make_blobs(1200, n_features=5, centers=K, cluster_std=2.0, random_state=0)
    known = np.arange(0, 1200, 6)
    wrong = np.where(np.random.default_rng(0).random(200) < 0.3, (y[known] + 1) % K, y[known])
    found = enlarge.enlarged(tensors(x.astype(np.float32)), known, wrong, K, 0)
    assert found is not None
    assert clustering_accuracy(y, found.labels) > 0.95
    assert 0.9 < found.value <= 1


def test_votes_stay_where_they_are_clearly_more_consistent(monkeypatch):
    x, y = short.moons(1200)
    known = np.arange(0, 1200, 4)
    chance = np.random.default_rng(1).integers(K, size=1200)
    monkeypatch.setattr(enlarge, "layout_clusters", lambda *_: [chance])
    assert enlarge.enlarged(tensors(x), known, y[known], K, 0) is None


def test_the_larger_sample_holds_the_one_that_is_known():
    known = sample_rows(40_000, 6000, 0)
    rows, places = choose.larger_sample(known, 40_000, 0)
    assert len(rows) == len(np.unique(rows)) == choose.CHOICE.most
    np.testing.assert_array_equal(rows[places], known)
    few = np.arange(50)
    np.testing.assert_array_equal(choose.larger_sample(few, 50, 0), (few, few))
