"""SSC: codes against scikit-learn's lasso and the conditions of optimality; perfect recovery."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from kscn.data import make_union_of_subspaces
from kscn.errors import InputError
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals import ssc
from kscn_paper.rivals.ssc import SSC, Atoms, largest_products, sparse_codes


def union(n=60, k=3, d=12, p=2, noise=0.05, **kwargs):
    X, y, _ = make_union_of_subspaces(
        n, k, d, p, noise=noise, random_state=0, dtype=np.float64, **kwargs
    )
    return X, y


def solve(atoms, weight, *, n=None, affine=False, tol=1e-8, max_iter=10000):
    """Codes as a dense array (n, m)."""
    n = len(atoms) if n is None else n
    weights = torch.as_tensor(np.broadcast_to(weight, (n,)).copy())
    found = sparse_codes(
        Atoms(torch.from_numpy(atoms), n, affine),
        weights,
        penalty=float(weights.max()),
        max_iter=max_iter,
        tol=tol,
    )
    codes = np.zeros((n, len(atoms)))
    codes[found.rows, found.columns] = found.values
    return codes, found


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
    codes, found = solve(X, weights)
    expected = np.array([lasso(X, i, weight) for i, weight in enumerate(weights)])
    np.testing.assert_allclose(codes, expected, atol=1e-6)
    assert found.unfinished == found.unsolved == 0


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


def test_affine_codes_meet_theirs():
    X, _ = union(affine=True)
    codes, _ = solve(X, 30.0, affine=True)
    np.testing.assert_allclose(codes.sum(axis=1), 1, atol=1e-7)
    gradient = 30 * (X - codes @ X) @ X.T
    for row, code, i in zip(gradient, codes, range(len(X)), strict=True):
        used = code != 0
        level = (row[used] - np.sign(code[used])).mean()  # the multiplier of the sum
        np.testing.assert_allclose(row[used] - level, np.sign(code[used]), atol=1e-4)
        assert np.abs(np.delete(row - level, i)).max() <= 1 + 1e-4


@pytest.mark.filterwarnings("ignore:Objective did not converge")
def test_further_atoms_join_the_lasso():
    X, _ = union(n=40)
    atoms = np.vstack([X, np.eye(12) / 3])
    codes, _ = solve(atoms, 50.0, n=40)
    for i in (0, 17, 39):
        np.testing.assert_allclose(codes[i], lasso(atoms, i, 50.0), atol=1e-6)


def test_samples_are_solved_independently_of_their_batch(monkeypatch):
    X, _ = union(n=50)
    whole, _ = solve(X, 40.0)
    monkeypatch.setattr(ssc, "CONSTANTS", ssc.Constants(block=7))
    np.testing.assert_allclose(solve(X, 40.0)[0], whole, atol=1e-6)


def test_weight_zero_means_no_code():
    X, _ = union()
    weights = np.full(len(X), 30.0)
    weights[4] = 0
    codes, found = solve(X, weights)
    assert not codes[4].any()
    assert codes[:4].any(axis=1).all()
    assert found.unsolved == 0


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


def test_affine_subspaces_are_recovered():
    X, y = union(n=150, k=3, d=10, p=2, noise=0.01, affine=True)
    assert clustering_accuracy(y, SSC(3, affine=True, random_state=0).fit_predict(X)) == 1


def test_outlying_entries_are_set_aside():
    X, y = union(n=150, k=3, d=40, p=3, noise=0)
    rng = np.random.default_rng(0)
    spoiled = rng.random(X.shape) < 0.05
    X[spoiled] += 3 * rng.standard_normal(spoiled.sum())
    plain = clustering_accuracy(y, SSC(3, random_state=0).fit_predict(X))
    aware = clustering_accuracy(y, SSC(3, outliers=5, random_state=0).fit_predict(X))
    assert aware > 0.98
    assert aware > plain


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
    with pytest.warns(ConvergenceWarning, match=r"60 of 60 samples did not converge in max_iter=1"):
        model = SSC(3, max_iter=1, tol=0, random_state=0).fit(X)
    assert model.n_iter_ == 10  # residuals are looked at every ten sweeps


def test_a_callback_ends_the_coding(monkeypatch):
    X, _ = union()
    monkeypatch.setattr(ssc, "CONSTANTS", ssc.Constants(block=8))

    def stop(model, record):
        return record["stage"] == "codes" and record["done"] > 0

    with pytest.warns(ConvergenceWarning, match="have no codes because a callback ended"):
        model = SSC(3, callbacks=[stop], random_state=0).fit(X)
    assert model.labels_.shape == (60,)
    assert [r["done"] for r in model.history_ if r["stage"] == "codes"][-1] < 60


@pytest.mark.parametrize(
    "params",
    [{"alpha": 0.5}, {"keep": 1.5}, {"outliers": 0.1}, {"outliers": "yes"}, {"affine": 1}],
)
def test_impossible_settings_are_refused_by_name(params):
    X, _ = union()
    with pytest.raises(InputError, match=next(iter(params))):
        SSC(3, **params).fit(X)


def test_equal_and_zero_samples_do_no_harm():
    X, y = union(noise=0)
    X = np.vstack([X, X[:5], np.zeros((2, X.shape[1]))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SSC(3, random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_[:60]) > 0.9
