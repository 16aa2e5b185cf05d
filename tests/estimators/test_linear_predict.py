"""Using a fitted `KSubspaces`: distances, posteriors, scores, and what they have in common."""

import numpy as np
import pytest

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.errors import InputError


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


def test_predict_is_the_nearest_and_transform_the_distance(fitted):
    model, X, _ = fitted
    residuals = model.residuals(X)
    assert residuals.shape == (400, 3)
    np.testing.assert_array_equal(model.predict(X), residuals.argmin(axis=1))
    np.testing.assert_array_equal(model.transform(X), np.sqrt(residuals))


def test_posteriors_sum_to_one_and_are_largest_at_the_prediction(fitted):
    model, X, _ = fitted
    posterior = model.predict_proba(X)
    assert posterior.shape == (400, 3)
    assert (posterior >= 0).all()
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    np.testing.assert_array_equal(posterior.argmax(axis=1), model.predict(X))


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


def test_scores_are_minus_the_residual_to_the_nearest(fitted):
    model, X, _ = fitted
    scores = model.score_samples(X)
    np.testing.assert_array_equal(scores, -model.residuals(X).min(axis=1))
    assert model.score(X) == pytest.approx(scores.sum())
    weights = np.random.default_rng(0).random(400)
    assert model.score(X, sample_weight=weights) == pytest.approx((scores * weights).sum())
    assert model.score(X) == pytest.approx(-model.inertia_)


def test_scores_rank_outliers_last():
    X, y, _ = union(1000, outliers=0.05, seed=1)
    model = KSubspaces(3, subspace_dim=2, trim=0.1, n_init=2, random_state=0).fit(X)
    scores = model.score_samples(X)
    worst = np.argsort(scores)[: (y < 0).sum()]
    assert (y[worst] < 0).mean() > 0.95


def test_a_sample_is_judged_alike_alone_and_in_company(fitted):
    model, X, _ = fitted
    alone = np.vstack([model.residuals(X[j : j + 1]) for j in range(20)])
    np.testing.assert_array_equal(alone, model.residuals(X)[:20])
    np.testing.assert_array_equal(
        [model.predict(X[j : j + 1])[0] for j in range(20)], model.labels_[:20]
    )


@pytest.mark.parametrize("method", ["predict", "residuals", "transform", "predict_proba", "score"])
def test_unsuitable_samples_are_refused(fitted, method):
    model, X, _ = fitted
    call = getattr(model, method)
    for value, words in ((np.nan, "Input X contains NaN"), (np.inf, "Input X contains infinity")):
        bad = X[:5].copy()
        bad[3, 2] = value
        with pytest.raises(InputError, match=words):
            call(bad)
    with pytest.raises(InputError, match="X has 7 features, but KSubspaces is expecting 8"):
        call(X[:, :7])
    with pytest.raises(InputError, match="Expected 2D array, got 1D array"):
        call(X[0])


def test_other_dtypes_than_the_fitted_one_are_converted(fitted):
    model, X, _ = fitted
    np.testing.assert_array_equal(model.predict(X.astype(np.float32)), model.labels_)
    assert model.residuals(X.astype(np.float32)).dtype == np.float64
