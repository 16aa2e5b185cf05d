"""Using a fitted `KSubspaces`: distances, posteriors, scores, and what they have in common."""

import numpy as np
import pytest

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces


def union(n=400, *, noise=0.05, affine=False, dtype=np.float64, seed=0, **kwargs):
    return make_union_of_subspaces(
        n, 3, 8, 2, noise=noise, affine=affine, random_state=seed, dtype=dtype, **kwargs
    )


@pytest.fixture(params=[False, True], ids=["linear", "affine"])
def fitted(request):
    X, y, _ = union(affine=request.param)
    params = {"subspace_dim": 2, "n_init": 2, "random_state": 0}
    return KSubspaces(3, affine=request.param, **params).fit(X), X, y


def test_residuals_are_the_squared_distances(fitted):
    model, X, _ = fitted
    offsets = np.zeros((3, 8)) if model.offsets_ is None else model.offsets_
    for i, (basis, offset) in enumerate(zip(model.subspaces_, offsets, strict=True)):
        away = X - offset
        away = away - away @ basis @ basis.T
        np.testing.assert_allclose(
            model.residuals(X)[:, i], (away**2).sum(axis=1), rtol=1e-9, atol=1e-13
        )


def test_posteriors_are_those_of_equal_isotropic_noise(fitted):
    model, X, _ = fitted
    odds = np.exp(-model.residuals(X) / (2 * model.noise_variance_))
    expected = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-12)


def test_posteriors_of_data_without_noise_are_certain():
    X, _, _ = union(noise=0.0)
    model = KSubspaces(3, subspace_dim=2, n_init=2, random_state=0).fit(X)
    posterior = model.predict_proba(X)
    assert np.isfinite(posterior).all()
    np.testing.assert_allclose(posterior.max(axis=1), 1)


def test_posteriors_are_calibrated_where_clusters_overlap():
    rng = np.random.default_rng(0)
    # Two lines at 20 degrees: near the origin nobody can tell them apart.
    angle = np.deg2rad(20.0)
    basis = np.array([[1.0, 0, 0], [np.cos(angle), np.sin(angle), 0]])
    y = np.arange(4000) % 2
    X = rng.standard_normal((4000, 1)) * basis[y] + 0.1 * rng.standard_normal((4000, 3))
    model = KSubspaces(2, init=y, subspace_dim=1, max_iter=1).fit(X)
    posterior = model.predict_proba(X)
    right = model.labels_ == y if (model.labels_ == y).mean() > 0.5 else model.labels_ != y
    assert posterior.max(axis=1).mean() == pytest.approx(right.mean(), abs=0.05)


def test_scores_rank_outliers_last():
    X, y, _ = union(1000, outliers=0.05, seed=1)
    model = KSubspaces(3, subspace_dim=2, trim=0.1, n_init=2, random_state=0).fit(X)
    scores = model.score_samples(X)
    worst = np.argsort(scores)[: (y < 0).sum()]
    assert (y[worst] < 0).mean() > 0.95


def test_other_dtypes_than_the_fitted_one_are_converted(fitted):
    model, X, _ = fitted
    np.testing.assert_array_equal(model.predict(X.astype(np.float32)), model.labels_)
    assert model.residuals(X.astype(np.float32)).dtype == np.float64
