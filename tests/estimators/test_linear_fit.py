"""What `KSubspaces.fit` finds, how it numbers, records, repeats and stops."""

import numpy as np
import pytest

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.errors import InputError
from kscn.metrics import clustering_accuracy


def union(n=400, k=3, d=8, p=2, *, noise=0.02, seed=0, **kwargs):
    return make_union_of_subspaces(n, k, d, p, noise=noise, random_state=seed, **kwargs)


def quick(**params):
    return KSubspaces(
        **{"n_clusters": 3, "subspace_dim": 2, "n_init": 2, "random_state": 0} | params
    )


def gap(bases, truth):
    """Largest sine between each true subspace and the nearest found one."""
    sines = [[np.linalg.norm(t - f @ (f.T @ t), 2) for f in bases] for t in truth]
    return max(min(row) for row in sines)


INITS = ["auto", "neighbours", "k-means"]


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("affine", [False, True])
def test_every_start_finds_an_easy_union(init, affine):
    X, y, bases = union(affine=affine, dtype=np.float64)
    model = quick(init=init, affine=affine).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.99
    assert gap(model.subspaces_, bases) < 0.05


def test_the_default_settings_find_dimensions_and_clusters_of_an_easy_union():
    X, y, _ = union(k=8, d=16, n=800)
    model = KSubspaces(random_state=0).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.99
    assert model.subspace_dims_.tolist() == [2] * 8


# Attributes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [False, True])
def test_attributes_have_the_documented_shapes_and_agree(affine):
    X, _, _ = union(affine=affine, dtype=np.float64)
    model = quick(affine=affine).fit(X)
    assert model.labels_.shape == (400,)
    assert model.labels_.dtype == np.int32
    assert model.subspaces_.shape == (3, 8, 2)
    assert model.subspace_dims_.tolist() == [2, 2, 2]
    assert model.spectra_.shape == (3, 8)
    assert model.n_features_in_ == 8
    assert model.random_state_ == 0
    gram = model.subspaces_.transpose(0, 2, 1) @ model.subspaces_
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(2), (3, 2, 2)), atol=1e-5)
    iterations = [record for record in model.history_ if record["stage"] == "fit"]
    assert model.n_iter_ == len(iterations)
    assert model.inertia_ == pytest.approx(-model.score(X))
    if not affine:
        assert model.offsets_ is None
        return
    for basis, offset, i in zip(model.subspaces_, model.offsets_, range(3), strict=True):
        away = X[model.labels_ == i] - offset
        away = away - away @ basis @ basis.T
        np.testing.assert_allclose(
            (away**2).sum(axis=1), model.residuals(X)[model.labels_ == i, i], rtol=1e-8, atol=1e-12
        )


def test_spectra_are_the_squared_singular_values_of_the_members():
    X, _, _ = union(dtype=np.float64)
    model = quick(tol=0, max_iter=300).fit(X)
    for i in range(3):
        exact = np.linalg.svd(X[model.labels_ == i], compute_uv=False) ** 2
        np.testing.assert_allclose(model.spectra_[i], exact, rtol=1e-8)


def test_noise_variance_is_that_of_the_noise():
    X, _, _ = union(4000, noise=0.05)
    assert quick().fit(X).noise_variance_ == pytest.approx(0.05**2, rel=0.05)


def test_clusters_are_numbered_by_falling_size_and_ties_by_their_first_sample():
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.standard_normal((4, 9, 2)))[0]
    y = np.repeat([0, 1, 2, 3], [50, 80, 50, 120])
    X = np.einsum("ndp,np->nd", bases[y], rng.standard_normal((300, 2)))
    for order in (np.arange(300), rng.permutation(300)):
        labels = quick(n_clusters=4).fit_predict(X[order])
        assert clustering_accuracy(y[order], labels) == 1
        assert np.bincount(labels).tolist() == [120, 80, 50, 50]
        assert np.flatnonzero(labels == 2)[0] < np.flatnonzero(labels == 3)[0]


# Weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [False, True])
def test_samples_of_weight_zero_have_no_influence(affine):
    X, y, bases = union(affine=affine, dtype=np.float64)
    far = 20 * np.random.default_rng(0).standard_normal((40, 8))
    weights = np.repeat([1.0, 0.0], [400, 40])
    model = quick(affine=affine, n_init=5).fit(np.vstack([X, far]), sample_weight=weights)
    assert clustering_accuracy(y, model.labels_[:400]) > 0.99
    assert gap(model.subspaces_, bases) < 0.05
    clean = quick(affine=affine).fit(X)
    assert model.inertia_ == pytest.approx(clean.inertia_, rel=1e-3)
    assert len(model.labels_) == 440


def test_equal_weights_are_no_weights():
    X, _, _ = union(noise=0.4)
    plain = quick().fit(X)
    for weights in (np.ones(400), [1] * 400):
        weighted = quick().fit(X, sample_weight=weights)
        np.testing.assert_array_equal(weighted.labels_, plain.labels_)
    doubled = quick().fit(X, sample_weight=np.full(400, 2.0))
    assert doubled.inertia_ == pytest.approx(2 * plain.inertia_, rel=1e-4)


@pytest.mark.parametrize(
    "weights",
    [np.ones(5), np.ones((400, 1)), -np.ones(400), np.zeros(400), np.full(400, np.nan)],
    ids=["length", "shape", "negative", "zero", "nan"],
)
def test_impossible_weights_are_refused(weights):
    X, _, _ = union()
    with pytest.raises(InputError, match=r"^sample_weight "):
        quick().fit(X, sample_weight=weights)


# Dimensions ---------------------------------------------------------------------------------------


def test_auto_finds_the_dimension_of_each_cluster():
    X, y, _ = union(900, k=3, d=12, p=[2, 3, 4], noise=0.02)
    model = quick(subspace_dim="auto").fit(X)
    assert clustering_accuracy(y, model.labels_) >= 0.97
    assert sorted(model.subspace_dims_) == [2, 3, 4]


@pytest.mark.parametrize("affine", [False, True])
def test_a_list_gives_each_cluster_its_dimension(affine):
    X, y, _ = union(600, k=3, d=10, p=[1, 2, 3], affine=affine)
    model = quick(subspace_dim=[3, 1, 2], affine=affine, n_init=5).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.97
    assert model.subspaces_.shape == (3, 10, 3)
    assert sorted(model.subspace_dims_) == [1, 2, 3]
    for basis, p in zip(model.subspaces_, model.subspace_dims_, strict=True):
        assert (basis[:, p:] == 0).all()
        np.testing.assert_allclose(basis[:, :p].T @ basis[:, :p], np.eye(p), atol=1e-5)


def test_one_cluster_is_the_svd_of_the_data():
    X, _, _ = union(noise=0.3, dtype=np.float64)
    model = quick(n_clusters=1).fit(X)
    assert (model.labels_ == 0).all()
    u = np.linalg.svd(X.T, full_matrices=False)[0][:, :2]
    assert gap(model.subspaces_, [u]) < 1e-6
    affine = quick(n_clusters=1, affine=True).fit(X + 3)
    mean = (X + 3).mean(axis=0)
    u = np.linalg.svd((X + 3 - mean).T, full_matrices=False)[0][:, :2]
    assert gap(affine.subspaces_, [u]) < 1e-6
    assert affine.residuals(mean[None])[0, 0] < 1e-12


# Given starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [False, True])
def test_labels_as_start(affine):
    X, y, _ = union(affine=affine)
    for start in (y, y.tolist(), y.astype(np.uint8)):
        model = quick(init=start, affine=affine).fit(X)
        assert clustering_accuracy(y, model.labels_) > 0.99
        assert model.n_iter_ <= 3
        assert all(record["stage"] == "fit" for record in model.history_)


def test_bases_as_start():
    X, y, bases = union()
    model = quick(init=bases).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.99
    assert model.n_iter_ <= 3
    mixed = np.random.default_rng(0).standard_normal((2, 2))
    again = quick(init=bases @ mixed).fit(X)  # only the span counts
    np.testing.assert_array_equal(again.labels_, model.labels_)


def test_a_start_with_an_empty_cluster_is_rescued():
    X, y, _ = union()
    model = quick(init=np.where(y == 2, 1, y), random_state=1).fit(X)
    assert len(np.unique(model.labels_)) == 3


# Trimming -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [False, True])
def test_trimming_keeps_outliers_from_turning_the_subspaces(affine):
    X, y, bases = union(1000, outliers=0.1, affine=affine, dtype=np.float64)
    trimmed = quick(trim=0.1, affine=affine, n_init=5).fit(X)
    inlier = y >= 0
    assert clustering_accuracy(y[inlier], trimmed.labels_[inlier]) > 0.99
    plain = quick(affine=affine, n_init=5).fit(X)
    assert gap(trimmed.subspaces_, bases) < 0.1
    assert gap(trimmed.subspaces_, bases) < gap(plain.subspaces_, bases)
    assert len(trimmed.labels_) == 1000
    assert trimmed.inertia_ < plain.inertia_


# Callbacks ----------------------------------------------------------------------------------------


def test_the_objective_of_search_and_fit_are_in_the_units_of_the_data():
    X, _, _ = union(noise=0.4)
    model = quick().fit(1000 * X)
    search = [r["objective"] for r in model.history_ if r["stage"] == "search"]
    fit = [r["objective"] for r in model.history_ if r["stage"] == "fit"]
    assert fit[0] == pytest.approx(search[-1], rel=0.05)
    assert fit[-1] == pytest.approx(model.inertia_, rel=1e-3)


# Degenerate data ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*clusters ended up empty")
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dim", [4, "auto"])
def test_fewer_samples_than_dimensions(affine, dim):
    X = np.random.default_rng(0).standard_normal((3, 5))
    model = quick(n_clusters=2, subspace_dim=dim, affine=affine).fit(X)
    assert model.inertia_ < 1e-10
    np.testing.assert_array_equal(model.labels_, model.predict(X))
