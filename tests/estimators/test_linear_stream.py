"""`partial_fit`: a stream of batches ends where a fit of all of them does."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from kscn import KSubspaces, load_model
from kscn.data import make_union_of_subspaces
from kscn.errors import InputError
from kscn.metrics import clustering_accuracy


def union(n=2000, *, noise=0.02, affine=False, seed=0, dtype=np.float64, **kwargs):
    return make_union_of_subspaces(
        n, 3, 8, 2, noise=noise, affine=affine, random_state=seed, dtype=dtype, **kwargs
    )


def quick(**params):
    return KSubspaces(
        **{"n_clusters": 3, "subspace_dim": 2, "n_init": 2, "random_state": 0} | params
    )


def stream(model, X, parts=10, weights=None):
    for rows in np.array_split(np.arange(len(X)), parts):
        model.partial_fit(X[rows], sample_weight=None if weights is None else weights[rows])
    return model


def gap(a, b):
    """Largest sine between the subspaces of a and the nearest of b."""
    sines = [[np.linalg.norm(s - t @ (t.T @ s), 2) for t in b] for s in a]
    return max(min(row) for row in sines)


@pytest.mark.parametrize("affine", [False, True])
def test_a_stream_finds_the_subspaces_of_a_fit(affine):
    X, y, _ = union(affine=affine)
    streamed = stream(quick(affine=affine), X)
    whole = quick(affine=affine).fit(X)
    assert gap(streamed.subspaces_, whole.subspaces_) < 2e-3
    assert clustering_accuracy(y, streamed.predict(X)) > 0.99
    assert clustering_accuracy(whole.labels_, streamed.predict(X)) > 0.995
    assert streamed.n_iter_ == 10
    assert streamed.cluster_weights_.sum() == 2000
    assert streamed.inertia_ == pytest.approx(whole.inertia_, rel=0.02)
    assert streamed.noise_variance_ == pytest.approx(whole.noise_variance_, rel=0.02)


def test_labels_are_those_of_the_last_batch():
    X, _, _ = union(noise=0.3)
    model = stream(quick(), X, parts=4)
    np.testing.assert_array_equal(model.labels_, model.predict(X[1500:]))


def test_every_batch_counts_alike():
    X, _, _ = union()
    one = stream(quick(), X, parts=10)
    reverse = quick().partial_fit(X[:200])
    for rows in reversed(np.array_split(np.arange(200, 2000), 9)):
        reverse.partial_fit(X[rows])
    assert gap(one.subspaces_, reverse.subspaces_) < 2e-3


def test_a_later_batch_may_be_small():
    X, _, _ = union()
    model = quick().partial_fit(X[:500])
    for j in range(500, 510):
        model.partial_fit(X[j : j + 1])
    assert model.cluster_weights_.sum() == 510
    assert model.labels_.shape == (1,)


def test_weights_count_in_a_stream():
    X, _, bases = union(outliers=0.1)
    weights = np.ones(2000)
    whole = stream(quick(), X[:1000], weights=weights[:1000])
    doubled = stream(quick(), X[:1000], weights=2 * weights[:1000])
    assert doubled.cluster_weights_.sum() == 2000
    assert gap(whole.subspaces_, doubled.subspaces_) < 1e-5
    clean, _, bases = union()
    spoilt = np.vstack([clean, 20 * np.random.default_rng(0).standard_normal((100, 8))])
    model = (
        quick()
        .partial_fit(clean)
        .partial_fit(spoilt, sample_weight=np.repeat([1.0, 0.0], [2000, 100]))
    )
    assert gap(model.subspaces_, bases) < 0.01


def test_trimming_keeps_outliers_out_of_a_stream():
    X, _, bases = union(outliers=0.1)
    plain, trimmed = stream(quick(n_init=4), X), stream(quick(n_init=4, trim=0.15), X)
    assert gap(trimmed.subspaces_, bases) < gap(plain.subspaces_, bases)
    assert gap(trimmed.subspaces_, bases) < 0.1


@pytest.mark.parametrize("affine", [False, True])
def test_a_stream_continues_after_loading(affine, tmp_path):
    X, _, bases = union(affine=affine)
    whole = stream(quick(affine=affine), X)
    quick(affine=affine).partial_fit(X[:1000]).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    stream(loaded, X[1000:], parts=5)
    assert loaded.cluster_weights_.sum() == 2000
    assert gap(loaded.subspaces_, bases) < 0.01
    assert gap(loaded.subspaces_, whole.subspaces_) < 0.005
    assert clustering_accuracy(whole.predict(X), loaded.predict(X)) > 0.99


@pytest.mark.parametrize("affine", [False, True])
def test_a_stream_continues_after_a_fit_without_forgetting_it(affine):
    X, _, bases = union(affine=affine)
    model = quick(affine=affine).fit(X[:1500])
    before = model.subspaces_.copy()
    model.partial_fit(X[1500:1510])
    assert gap(model.subspaces_, before) < 0.005
    assert model.cluster_weights_.sum() == 1510
    stream(model, X[1510:])
    assert gap(model.subspaces_, bases) < 0.01


def test_a_stream_of_another_width_is_refused_and_changes_nothing():
    X, _, _ = union()
    model = quick().partial_fit(X)
    before = model.subspaces_.copy()
    with pytest.raises(InputError, match="X has 5 features, but KSubspaces is expecting 8"):
        model.partial_fit(X[:, :5])
    bad = X.copy()
    bad[-1, 0] = np.nan
    with pytest.raises(InputError, match="contains NaN"):
        model.partial_fit(bad)
    np.testing.assert_array_equal(model.subspaces_, before)
    assert model.cluster_weights_.sum() == 2000
    assert model.partial_fit(X).cluster_weights_.sum() == 4000


def test_a_first_batch_that_is_refused_leaves_the_model_unfitted():
    X, _, _ = union()
    model = quick()
    with pytest.raises(InputError, match="n_samples=2 should be >= n_clusters=3"):
        model.partial_fit(X[:2])
    assert model.partial_fit(X).labels_.shape == (2000,)


def test_mixed_dimensions_stay_in_a_stream():
    X, _, _ = make_union_of_subspaces(
        1200, 3, 10, [1, 2, 3], noise=0.02, random_state=0, dtype=np.float64
    )
    model = stream(quick(subspace_dim=[1, 2, 3], n_init=5), X, parts=3)
    assert sorted(model.subspace_dims_) == [1, 2, 3]
    model = stream(quick(subspace_dim=[1, 2, 3]).fit(X), X, parts=3)
    assert sorted(model.subspace_dims_) == [1, 2, 3]


def test_clusters_that_no_batch_has_filled_are_told():
    X = np.repeat(np.random.default_rng(0).standard_normal((3, 6)), 20, axis=0)
    with pytest.warns(ConvergenceWarning, match="2 of the 5 clusters ended up empty"):
        quick(n_clusters=5, subspace_dim=1).partial_fit(X)


def test_trimming_goes_by_the_batch_however_it_is_read():
    X, _, _ = make_union_of_subspaces(400, 3, 8, 2, noise=0.05, outliers=0.1, random_state=0)
    found = [
        quick(n_init=2, trim=0.15, batch_size=rows).partial_fit(X).subspaces_ for rows in (64, 400)
    ]
    np.testing.assert_allclose(*found, atol=1e-5)
