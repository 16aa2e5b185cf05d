"""Quality bounds on real and synthetic data, with the settings that people get by default."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy

pytestmark = pytest.mark.slow

SIZES = [(10, 30, 5), (20, 50, 5)]


@pytest.mark.xfail(
    strict=True, reason="eight of ten since the search has a budget of a second, see results/LOG.md"
)
def test_digits_in_nine_of_ten_seeds():
    X, y = load_digits(return_X_y=True)
    found = [
        clustering_accuracy(y, KSubspaces(10, subspace_dim=4, random_state=seed).fit_predict(X))
        for seed in range(10)
    ]
    assert np.sum(np.array(found) >= 0.88) >= 9, found


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
