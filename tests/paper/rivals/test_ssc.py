"""SSC: codes against scikit-learn's lasso and the conditions of optimality; perfect recovery."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.ssc import SSC, Atoms, largest_products, sparse_codes


def union(n=60, k=3, d=12, p=2, noise=0.05, **kwargs):
    X, y, _ = make_union_of_subspaces(
        n, k, d, p, noise=noise, random_state=0, dtype=np.float64, **kwargs
    )
    return X, y


def solve(samples, weight, *, tol=1e-8, max_iter=10000, **block):
    """Codes as a dense array (n, n), and how many are unfinished."""
    weights = torch.as_tensor(np.broadcast_to(weight, (len(samples),)).copy())
    codes, _, unfinished = sparse_codes(
        Atoms(torch.from_numpy(samples)),
        weights,
        penalty=float(weights.max()),
        max_iter=max_iter,
        tol=tol,
        **block,
    )
    return codes.toarray(), unfinished


def lasso(atoms, i, weight):
    """The code of sample i by coordinate descent."""
    others = np.arange(len(atoms)) != i
    d = atoms.shape[1]
    model = Lasso(alpha=1 / (weight * d), fit_intercept=False, tol=1e-12, max_iter=100_000)
    code = np.zeros(len(atoms))
    code[others] = model.fit(atoms[others].T, atoms[i]).coef_
    return code


@pytest.mark.filterwarnings("ignore:Objective did not converge")
def test_codes_equal_those_of_coordinate_descent():
    X, _ = union()
    weights = np.linspace(20, 200, len(X))
    codes, unfinished = solve(X, weights)
    expected = np.array([lasso(X, i, weight) for i, weight in enumerate(weights)])
    np.testing.assert_allclose(codes, expected, atol=1e-6)
    assert unfinished == 0


@pytest.mark.parametrize("dtype, slack", [(np.float32, 2e-2), (np.float64, 1e-5)])
def test_codes_meet_the_conditions_of_optimality(dtype, slack):
    # More features than samples, more samples than features.
    for shape in ({"n": 30, "d": 50}, {"n": 80, "d": 8}):
        X, _ = union(**shape, noise=0.2)
        codes, _ = solve(X.astype(dtype), dtype(30), tol=1e-5 if dtype == np.float32 else 1e-8)
        gradient = 30 * (X - codes @ X) @ X.T  # minus that of the squared error
        assert (np.diag(codes) == 0).all()
        np.fill_diagonal(gradient, 0)
        assert np.abs(gradient).max() <= 1 + slack
        used = codes != 0
        np.testing.assert_allclose(gradient[used], np.sign(codes[used]), atol=slack)


def test_samples_are_solved_independently_of_their_batch():
    X, _ = union(n=50)
    whole, _ = solve(X, 40.0)
    np.testing.assert_allclose(solve(X, 40.0, block=7)[0], whole, atol=1e-6)


def test_weight_zero_means_no_code():
    X, _ = union()
    weights = np.full(len(X), 30.0)
    weights[4] = 0
    codes, _ = solve(X, weights)
    assert not codes[4].any()
    assert codes[:4].any(axis=1).all()


def test_the_largest_product_is_with_another_sample():
    X, _ = union()
    expected = np.abs(X @ X.T)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(largest_products(torch.from_numpy(X)), expected.max(axis=1))


def test_independent_subspaces_are_recovered_and_codes_stay_inside():
    X, y = union(n=150, k=4, d=20, p=3, noise=0)
    model = SSC(4, random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_) == 1
    codes = model.codes_.tocoo()
    across = y[codes.row] != y[codes.col]
    assert np.abs(codes.data[across]).sum() < 1e-6 * np.abs(codes.data).sum()


def test_one_weight_for_all_is_the_largest_of_the_samples_own():
    X, _ = union()
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    products = np.abs(X @ X.T)
    np.fill_diagonal(products, 0)
    mu = products.max(axis=1)
    for shared, weight in ((True, 20 / mu.min()), (False, 20 / mu)):
        model = SSC(3, shared_weight=shared, tol=1e-8, max_iter=10_000, random_state=0).fit(X)
        np.testing.assert_allclose(model.codes_.toarray(), solve(X, weight)[0], atol=1e-6)


def test_too_few_sweeps_are_told():
    X, _ = union()
    with pytest.warns(ConvergenceWarning, match="60 of 60 samples did not converge") as told:
        model = SSC(3, max_iter=1, tol=0, random_state=0).fit(X)
    assert {one.filename for one in told} == {__file__}
    assert model.n_iter_ == 10  # residuals are looked at every ten sweeps


def test_equal_and_zero_samples_do_no_harm():
    X, y = union(noise=0)
    X = np.vstack([X, X[:5], np.zeros((2, X.shape[1]))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SSC(3, random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_[:60]) > 0.9
