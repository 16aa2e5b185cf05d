"""SSC-OMP: codes against scikit-learn's orthogonal matching pursuit; perfect recovery."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import orthogonal_mp

from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.ssc_omp import SSCOMP, greedy_codes


def unit_union(n=60, k=3, d=15, p=3, noise=0.05):
    X, y, _ = make_union_of_subspaces(n, k, d, p, noise=noise, random_state=0, dtype=np.float64)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def by_scikit_learn(X, **stop):
    """Codes one by one; the first samples are enough."""
    codes = np.zeros((25, len(X)))
    for i, code in enumerate(codes):
        others = np.arange(len(X)) != i
        code[others] = orthogonal_mp(X[others].T, X[i], **stop)
    return codes


@pytest.mark.parametrize("picks", [1, 4, 15])
def test_codes_equal_those_of_scikit_learn(picks):
    X, _ = unit_union()
    codes, most = greedy_codes(torch.from_numpy(X), picks, 0)
    assert most == picks
    expected = by_scikit_learn(X, n_nonzero_coefs=picks)
    np.testing.assert_allclose(codes.toarray()[:25], expected, atol=1e-9)


@pytest.mark.parametrize("tol", [0.5, 0.1])
def test_the_threshold_acts_on_the_norm_of_the_residual(tol):
    X, _ = unit_union()
    codes = greedy_codes(torch.from_numpy(X), 15, tol)[0].toarray()
    np.testing.assert_allclose(codes[:25], by_scikit_learn(X, tol=tol**2), atol=1e-9)
    assert np.linalg.norm(X - codes @ X, axis=1).max() <= tol


def test_blocks_do_not_change_the_codes():
    X, _ = unit_union()
    whole = greedy_codes(torch.from_numpy(X), 5, 1e-6)[0].toarray()
    parts = greedy_codes(torch.from_numpy(X), 5, 1e-6, entries=60 * 7)[0].toarray()
    np.testing.assert_allclose(parts, whole, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_on_subspaces_need_as_many_picks_as_dimensions(dtype):
    X, y = unit_union(n=150, noise=0)
    model = SSCOMP(3, random_state=0).fit(X.astype(dtype))
    assert clustering_accuracy(y, model.labels_) == 1
    codes = model.codes_.tocoo()
    assert codes.dtype == dtype
    big = np.abs(codes.data) > 1e-3
    assert (y[codes.row[big]] == y[codes.col[big]]).all()
    if dtype == np.float64:
        assert model.n_iter_ == 3


def test_equal_samples_express_each_other():
    X, _ = unit_union(n=20)
    doubled = np.repeat(X, 2, axis=0)
    codes = greedy_codes(torch.from_numpy(doubled), 5, 1e-6)[0].toarray()
    expected = np.kron(np.eye(20), [[0, 1], [1, 0]])
    np.testing.assert_allclose(codes, expected, atol=1e-9)


def test_dependent_samples_are_not_picked_twice():
    # Three directions in all: after three picks nothing is left, whatever is allowed.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 12))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    codes, most = greedy_codes(torch.from_numpy(X), 10, 0)
    assert most <= 4
    assert np.abs(codes.data).max() < 1e3
    np.testing.assert_allclose(codes @ X, X, atol=1e-9)


def test_zero_samples_have_no_codes():
    X, y = unit_union(n=90, noise=0)
    X[[3, 50]] = 0
    model = SSCOMP(3, random_state=0).fit(X)
    codes = model.codes_.toarray()
    assert not codes[[3, 50]].any() and not codes[:, [3, 50]].any()
    rest = np.delete(np.arange(90), [3, 50])
    assert clustering_accuracy(y[rest], model.labels_[rest]) == 1
