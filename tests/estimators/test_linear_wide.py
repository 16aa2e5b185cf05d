"""`KSubspaces` on samples of many columns, which it fits along fewer directions first."""

import numpy as np
import pytest

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy

K, D, P = 4, 400, 3


def union(n=600, *, noise=0.02, dtype=np.float32, **kwargs):
    return make_union_of_subspaces(n, K, D, P, noise=noise, random_state=0, dtype=dtype, **kwargs)[
        :2
    ]


def objective_of(X, labels, affine=False):
    """Sum of squared distances to the best subspaces of these clusters, by singular values."""
    total = 0.0
    for i in np.unique(labels):
        members = X[labels == i].astype(np.float64)
        members = members - members.mean(axis=0) if affine else members
        total += (np.linalg.svd(members, compute_uv=False)[P:] ** 2).sum()
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("affine", [False, True])
def test_subspaces_are_the_best_of_their_members_in_all_columns(dtype, affine):
    X, y = union(dtype=dtype, affine=affine)
    model = KSubspaces(K, affine=affine, random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_) == 1
    assert model.subspace_dims_.tolist() == [P] * K
    assert model.inertia_ == pytest.approx(objective_of(X, model.labels_, affine), rel=1e-4)
    assert model.spectra_.shape == (K, D)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_the_fit_ends_where_iterations_in_all_columns_stay():
    X, _ = union(noise=0.3)
    model = KSubspaces(K, subspace_dim=P, tol=0, random_state=0).fit(X)
    again = KSubspaces(K, subspace_dim=P, tol=0, init=model.subspaces_, random_state=0).fit(X)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert model.inertia_ == pytest.approx(objective_of(X, model.labels_), rel=1e-4)


@pytest.mark.parametrize("max_iter", [1, 2])
def test_updates_are_exact_however_the_fit_ends(max_iter):
    X, _ = union(noise=0.3)
    labels = np.random.default_rng(0).integers(K, size=len(X))
    seen = []
    model = KSubspaces(K, subspace_dim=P, init=labels, max_iter=max_iter, random_state=0)
    model.set_params(callbacks=[lambda estimator, _: seen.append(estimator)]).fit(X)
    assert model.n_iter_ == len(seen) == max_iter
    held = sum(float(values[:P].sum()) for values in model.spectra_)
    total = float((X.astype(np.float64) ** 2).sum())
    objective = model.history_[-1]["objective"]
    assert total - held <= objective * (1 + 1e-6)


def test_fewer_samples_than_columns():
    X, y = union(n=80)
    model = KSubspaces(K, subspace_dim=P, random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_) == 1
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("value", [0.0, 100.0])
def test_constant_columns_do_not_hide_the_dimension(value, affine):
    X, y = union(affine=affine, dtype=np.float64)
    model = KSubspaces(K, affine=affine, random_state=0)
    model.fit(np.hstack([X, np.full((len(X), 5), value)]))
    assert clustering_accuracy(y, model.labels_) == 1
    assert model.subspace_dims_.tolist() == [P + (value > 0 and not affine)] * K


def test_weights_and_trimming():
    X, y = union()
    X[::20] = 3 * np.random.default_rng(0).standard_normal(X[::20].shape).astype(np.float32)
    usual = np.arange(len(X)) % 20 > 0
    for model, weights in (
        (KSubspaces(K, subspace_dim=P, trim=0.1, random_state=0), None),
        (KSubspaces(K, subspace_dim=P, random_state=0), usual.astype(float)),
    ):
        labels = model.fit(X, sample_weight=weights).labels_
        assert clustering_accuracy(y[usual], labels[usual]) > 0.95
