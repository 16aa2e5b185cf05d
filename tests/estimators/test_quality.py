"""Bounds on quality, with the settings that people get by default: slow."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from kscn import KSCN, KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn_paper import methods

pytestmark = pytest.mark.slow
SIZES = [(10, 30, 5), (20, 50, 5)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("k", "d", "p"), SIZES)
def test_noisy_subspaces_are_recovered(k, d, p, seed):
    X, y, _ = make_union_of_subspaces(20000, k, d, p, noise=0.05, random_state=seed)
    labels = KSubspaces(k, subspace_dim=p, random_state=seed).fit_predict(X)
    assert clustering_accuracy(y, labels) >= 0.999


@pytest.mark.parametrize(("k", "d", "p"), SIZES)
def test_noisy_affine_subspaces_are_recovered(k, d, p):
    X, y, _ = make_union_of_subspaces(20000, k, d, p, noise=0.05, affine=True, random_state=0)
    labels = KSubspaces(k, subspace_dim=p, affine=True, random_state=0).fit_predict(X)
    assert clustering_accuracy(y, labels) >= 0.999


@pytest.mark.parametrize(("k", "d", "p"), SIZES)
def test_subspaces_are_recovered_among_outliers(k, d, p):
    X, y, _ = make_union_of_subspaces(20000, k, d, p, noise=0.05, outliers=0.1, random_state=0)
    labels = KSubspaces(k, subspace_dim=p, trim=0.1, random_state=0).fit_predict(X)
    assert clustering_accuracy(y[y >= 0], labels[y >= 0]) >= 0.99


@pytest.mark.parametrize("seed", [0, 1])
def test_digits_are_clustered_without_labels_and_better_than_the_start(seed):
    X, y = load_digits().images.astype(np.float32), load_digits().target
    end = methods.make("kscn-s", 10, dataset="digits", random_state=seed)
    start = clone(end).set_params(epochs=0).fit(X)
    assert clustering_accuracy(y, end.fit(X).labels_) >= 0.90
    assert clustering_accuracy(y, end.labels_) > clustering_accuracy(y, start.labels_)


def test_the_defaults_cluster_500_digits():
    X, y = load_digits().images[:500].astype(np.float32), load_digits().target[:500]
    assert clustering_accuracy(y, KSCN(10, random_state=0).fit(X).labels_) > 0.8
