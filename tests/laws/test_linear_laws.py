"""Laws of `KSubspaces` that hold for any data, or for any well-separated union of subspaces."""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy

few = settings(max_examples=8)


@st.composite
def shapes(draw):
    """Number of clusters, features and dimensions of small problems."""
    k = draw(st.integers(1, 4))
    d = draw(st.integers(3, 10))
    p = draw(st.integers(1, min(3, d - 1)))
    return k, d, p


@st.composite
def any_data(draw):
    """Samples without any structure worth finding, in either precision, at any scale."""
    k, d, p = draw(shapes())
    n = draw(st.integers(k + 2, 120))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    X = rng.standard_normal((n, d)) * 10.0 ** draw(st.integers(-6, 6))
    if draw(st.booleans()):
        X = np.round(X / np.abs(X).max() * 4)  # few distinct values: ties and duplicates
        X[0, 0] += 1  # but not all equal
    return X.astype(draw(st.sampled_from([np.float32, np.float64]))), k, p


@st.composite
def unions(draw, affine=False):
    """Well-separated subspaces with little noise: any sensible start finds them."""
    k, p = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    d = k * (p + 1) + draw(st.integers(1, 4))  # room for all of them side by side
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    frame = np.linalg.qr(rng.standard_normal((d, d)))[0]
    y = rng.permutation(np.arange(25 * k) % k)
    bases = np.stack([frame[:, i * p : (i + 1) * p] for i in range(k)])
    inside = rng.standard_normal((len(y), p))
    inside *= rng.uniform(0.5, 2, (len(y), 1)) / np.linalg.norm(inside, axis=1, keepdims=True)
    X = np.einsum("ndp,np->nd", bases[y], inside)  # none near the origin, where all of them meet
    if affine:
        X += 3 * frame[:, k * p : k * p + k].T[y]
    return X + 1e-3 * rng.standard_normal(X.shape), y, bases


def model(k, p, **params):
    return KSubspaces(k, subspace_dim=p, **{"n_init": 2, "random_state": 0} | params)


def fitted(estimator, X, **kwargs):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*clusters ended up empty")
        return estimator.fit(X, **kwargs)


@few
@given(any_data(), st.booleans(), st.sampled_from(["auto", "neighbours", "k-means"]))
def test_the_objective_never_rises(data, affine, init):
    X, k, p = data
    found = fitted(model(k, p, affine=affine, init=init, n_init=1, tol=0), X)
    objective = np.array([r["objective"] for r in found.history_ if r["stage"] == "fit"])
    total = float((X.astype(np.float64) ** 2).sum())
    assert (np.diff(objective) <= 1e-6 * objective[0] + 1e-12 * total).all()


@few
@given(any_data(), st.booleans(), st.sampled_from([0.0, 0.2]))
def test_labels_equal_predict_and_bases_are_orthonormal(data, affine, trim):
    X, k, p = data
    found = fitted(model(k, p, affine=affine, trim=trim), X)
    np.testing.assert_array_equal(found.labels_, found.predict(X))
    gram = found.subspaces_.transpose(0, 2, 1) @ found.subspaces_
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(p), gram.shape), atol=1e-5)
    assert found.labels_.shape == (len(X),)
    assert 0 <= found.labels_.min() <= found.labels_.max() < k
    assert 0 <= found.inertia_ <= (X.astype(np.float64) ** 2).sum() * (1 + 1e-5)


@few
@given(any_data(), st.booleans(), st.sampled_from([1, 7, 50]))
def test_the_batch_size_changes_no_label(data, affine, batch_size):
    X, k, p = data
    one = fitted(model(k, p, affine=affine, n_init=1), X)
    other = fitted(model(k, p, affine=affine, n_init=1, batch_size=batch_size), X)
    np.testing.assert_array_equal(one.labels_, other.labels_)


@few
@given(unions(), st.integers(0, 10**6))
def test_a_rotation_of_the_space_changes_no_label(data, seed):
    X, y, bases = data
    k, d, p = bases.shape
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]
    here, there = model(k, p).fit(X), model(k, p).fit(X @ q)
    np.testing.assert_array_equal(here.labels_, there.labels_)
    assert clustering_accuracy(y, here.labels_) == 1
    turned = np.einsum("de,kdp->kep", q, here.subspaces_)
    np.testing.assert_allclose(
        turned @ turned.transpose(0, 2, 1),
        there.subspaces_ @ there.subspaces_.transpose(0, 2, 1),
        atol=1e-8,
    )


@few
@given(unions(affine=True), st.integers(0, 10**6))
def test_a_rigid_motion_changes_no_label_of_affine_subspaces(data, seed):
    X, y, bases = data
    k, d, p = bases.shape
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    here = model(k, p, affine=True).fit(X)
    there = model(k, p, affine=True).fit(X @ q + 10 * rng.standard_normal(d))
    np.testing.assert_array_equal(here.labels_, there.labels_)
    assert clustering_accuracy(y, here.labels_) == 1


@few
@given(shapes(), st.integers(0, 10**6))
def test_the_order_of_the_samples_does_not_matter_from_a_given_start(shape, seed):
    k, d, p = shape
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30 * k, d))  # enough of them that no cluster runs empty
    start = np.linalg.qr(rng.standard_normal((k, d, p)))[0]
    order = rng.permutation(len(X))
    one, other = model(k, p, init=start).fit(X), model(k, p, init=start).fit(X[order])
    assert clustering_accuracy(one.labels_[order], other.labels_) == 1
    np.testing.assert_allclose(one.inertia_, other.inertia_, rtol=1e-9)


@few
@given(any_data(), st.booleans(), st.integers(-12, 12))
def test_scaling_the_data_scales_the_distances_and_changes_no_label(data, affine, exponent):
    X, k, p = data
    factor = X.dtype.type(2.0) ** exponent
    one = fitted(model(k, p, affine=affine, n_init=1), X)
    other = fitted(model(k, p, affine=affine, n_init=1), factor * X)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    scale = float(factor) ** 2
    total = float((X.astype(np.float64) ** 2).sum())
    np.testing.assert_allclose(
        other.inertia_, scale * one.inertia_, rtol=1e-4, atol=1e-9 * scale * total
    )


@few
@given(unions())
def test_any_scale_of_a_union_gives_the_same_clusters(data):
    X, y, bases = data
    k, _, p = bases.shape
    for factor in (1e-3, np.pi):
        assert clustering_accuracy(y, model(k, p).fit_predict(factor * X)) == 1


@few
@given(any_data(), st.booleans())
def test_the_same_seed_gives_the_same_bits(data, affine):
    X, k, p = data
    one, other = (fitted(model(k, p, affine=affine), X) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.subspaces_, other.subspaces_)


@few
@given(any_data())
def test_posteriors_are_distributions_whose_mode_is_the_prediction(data):
    X, k, p = data
    found = fitted(model(k, p, n_init=1), X)
    posterior = found.predict_proba(X)
    assert np.isfinite(posterior).all()
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    chosen = np.take_along_axis(posterior, found.predict(X)[:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(chosen, posterior.max(axis=1))


@few
@given(st.integers(0, 10**6), st.booleans())
def test_more_dimensions_never_fit_worse_from_the_same_clusters(seed, affine):
    X, y, _ = make_union_of_subspaces(
        120, 3, 8, 2, noise=0.3, affine=affine, random_state=seed, dtype=np.float64
    )
    inertia = [
        model(3, p, affine=affine, init=y, max_iter=1).fit(X).history_[0]["objective"]
        for p in range(1, 8)
    ]
    assert (np.diff(inertia) <= 1e-9 * inertia[0]).all()
