"""What `KSubspaces.fit` finds, how it numbers, records, repeats and stops."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError

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


@pytest.mark.parametrize("trim", [0.0, 0.1])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_equal_predict(dtype, affine, trim):
    X, _, _ = union(noise=0.5, dtype=dtype, affine=affine)
    params = {"affine": affine, "trim": trim, "n_init": 1}
    model = quick(**params).fit(X)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    np.testing.assert_array_equal(model.labels_, quick(**params).fit_predict(X))


def test_labels_equal_predict_when_stopped_early():
    X, _, _ = union(noise=0.5)
    model = quick(max_iter=1, n_init=1).fit(X)
    np.testing.assert_array_equal(model.labels_, model.predict(X))


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


def test_sums_follow_the_numbering():
    X, _, _ = union(n=401, noise=0.4)
    model = quick(tol=0, max_iter=500).fit(X)
    np.testing.assert_array_equal(model.cluster_weights_, np.bincount(model.labels_))


# Repeatability ------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_result():
    X, _, _ = union(noise=0.5)
    one, two = quick(random_state=3).fit(X), quick(random_state=3).fit(X)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.subspaces_, two.subspaces_)


def test_fitting_again_forgets_the_first_fit():
    X, _, _ = union(noise=0.5)
    other, _, _ = union(d=5, affine=True, seed=1)
    reused = quick().fit(other).fit(X)
    fresh = quick().fit(X)
    np.testing.assert_array_equal(reused.labels_, fresh.labels_)
    np.testing.assert_array_equal(reused.subspaces_, fresh.subspaces_)
    assert reused.n_iter_ == fresh.n_iter_
    assert reused.history_[0]["stage"] == "search"


def test_a_seed_that_was_not_given_is_recorded_and_repeats_the_fit():
    X, _, _ = union(noise=0.5)
    model = quick(random_state=None).fit(X)
    again = quick(random_state=model.random_state_).fit(X)
    np.testing.assert_array_equal(model.labels_, again.labels_)
    np.testing.assert_array_equal(model.subspaces_, again.subspaces_)
    assert quick(random_state=None).fit(X).random_state_ != model.random_state_


def test_a_random_state_object_is_drawn_from():
    X, _, _ = union(n=60)
    state = np.random.RandomState(0)
    first, second = (quick(random_state=state).fit(X).random_state_ for _ in range(2))
    assert first != second
    assert quick(random_state=np.random.RandomState(0)).fit(X).random_state_ == first


def test_the_global_random_states_are_left_alone():
    X, _, _ = union(n=60)
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    quick().fit(X)
    np.testing.assert_array_equal(before[0], np.random.get_state()[1])
    assert torch.equal(before[1], torch.get_rng_state())


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


def test_samples_of_weight_zero_have_no_influence_on_a_start_from_labels():
    X, y, _ = union(dtype=np.float64)
    far = 20 * np.random.default_rng(0).standard_normal((40, 8))
    weights = np.repeat([1.0, 0.0], [400, 40])
    start = np.concatenate([y, np.zeros(40, dtype=int)])
    weighted = quick(init=start, max_iter=1).fit(np.vstack([X, far]), sample_weight=weights)
    clean = quick(init=y, max_iter=1).fit(X)
    assert weighted.history_[0]["objective"] == pytest.approx(clean.history_[0]["objective"])


def test_equal_weights_are_no_weights():
    X, _, _ = union(noise=0.4)
    plain = quick(init="k-means").fit(X)
    for weights in (np.ones(400), 1, [1] * 400):
        weighted = quick(init="k-means").fit(X, sample_weight=weights)
        np.testing.assert_array_equal(weighted.labels_, plain.labels_)
    doubled = quick(init="k-means").fit(X, sample_weight=np.full(400, 2.0))
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


@pytest.mark.parametrize("value", [2, np.int64(2), [2, 2, 2], np.array([2, 2, 2]), (2, 2, 2)])
def test_equal_ways_to_say_the_dimension(value):
    X, _, _ = union()
    np.testing.assert_array_equal(quick(subspace_dim=value).fit(X).labels_, quick().fit(X).labels_)


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


def test_bases_as_start_of_affine_subspaces():
    X, y, bases = union(affine=True)
    model = quick(init=bases, affine=True).fit(X)
    assert clustering_accuracy(y, model.labels_) > 0.99


def test_bases_of_differing_dimensions_as_start():
    X, y, bases = union(k=3, d=10, p=[3, 1, 2])
    model = quick(init=bases, subspace_dim=[3, 1, 2]).fit(X)
    assert sorted(model.subspace_dims_) == [1, 2, 3]
    assert clustering_accuracy(y, model.labels_) > 0.97


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


def test_callbacks_hear_every_record_in_order():
    X, _, _ = union(noise=0.4)
    heard = []
    model = quick(callbacks=[lambda estimator, record: heard.append((estimator, record))]).fit(X)
    assert all(estimator is model for estimator, _ in heard)
    records = [record for _, record in heard]
    assert records == model.history_
    stages = [record["stage"] for record in records]
    assert stages == sorted(stages, key=["search", "fit"].index)
    assert set(stages) == {"search", "fit"}
    seconds = [record["seconds"] for record in records]
    assert seconds == sorted(seconds)
    search = [record for record in records if record["stage"] == "search"]
    fit = [record for record in records if record["stage"] == "fit"]
    assert all(set(r) >= {"round", "rounds", "starts", "samples", "objective"} for r in search)
    assert [record["iteration"] for record in fit] == list(range(1, len(fit) + 1))
    assert all(set(r) >= {"max_iter", "objective", "changed"} for r in fit)


def test_the_objective_of_search_and_fit_are_in_the_units_of_the_data():
    X, _, _ = union(noise=0.4)
    model = quick().fit(1000 * X)
    search = [r["objective"] for r in model.history_ if r["stage"] == "search"]
    fit = [r["objective"] for r in model.history_ if r["stage"] == "fit"]
    assert fit[0] == pytest.approx(search[-1], rel=0.05)
    assert fit[-1] == pytest.approx(model.inertia_, rel=1e-3)


def test_a_callback_can_stop_the_fit():
    X, _, _ = union(noise=0.5)
    stop = quick(n_init=1, tol=0, callbacks=[lambda _, record: record.get("iteration") == 2])
    assert stop.fit(X).n_iter_ == 2
    np.testing.assert_array_equal(stop.labels_, stop.predict(X))


def test_only_true_stops_and_all_callbacks_are_called():
    X, _, _ = union(noise=0.5)
    heard = []

    def stop(_, record):
        return record["stage"] == "fit"

    def count(_, record):
        heard.append(record)
        return len(heard)  # truthy, but not True

    model = quick(n_init=1, tol=0, callbacks=(stop, count)).fit(X)
    assert model.n_iter_ == 1
    assert len(heard) == len(model.history_)


class InterruptOn:
    """Raise at the first record of a stage, once armed."""

    def __init__(self, stage):
        self.stage = stage
        self.armed = False

    def __call__(self, estimator, record):
        if self.armed and record["stage"] == self.stage:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stage", ["search", "fit"])
@pytest.mark.parametrize("affine", [False, True])
def test_an_interrupted_first_fit_can_be_repeated(affine, stage):
    X, _, _ = union(affine=affine)
    interrupt = InterruptOn(stage)
    interrupt.armed = True
    model = quick(affine=affine, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    with pytest.raises(NotFittedError):
        model.predict(X)
    interrupt.armed = False
    expected = quick(affine=affine).fit(X)
    np.testing.assert_array_equal(model.fit(X).labels_, expected.labels_)


@pytest.mark.parametrize("stage", ["search", "fit"])
@pytest.mark.parametrize("affine", [False, True])
def test_an_interrupted_second_fit_leaves_the_first_model_or_none(affine, stage):
    X, _, _ = union(affine=affine)
    other, _, _ = union(d=5, seed=1, affine=affine)
    interrupt = InterruptOn(stage)
    model = quick(affine=affine, callbacks=[interrupt]).fit(X)
    before = model.residuals(X)
    interrupt.armed = True
    for data in (X + 1, other, other.astype(np.float64)):
        with pytest.raises(KeyboardInterrupt):
            model.fit(data)
        try:
            after = model.residuals(X)
        except NotFittedError:
            continue
        np.testing.assert_array_equal(after, before)
    interrupt.armed = False
    np.testing.assert_array_equal(model.fit(X).residuals(X), before)


def test_a_refused_second_fit_leaves_the_first_model_or_none():
    X, _, _ = union(affine=True)
    model = quick(affine=True).fit(X)
    before = model.residuals(X)
    bad = np.full((50, 5), np.nan)
    with pytest.raises(InputError):
        model.fit(bad)
    try:
        after = model.residuals(X)
    except NotFittedError:
        return
    np.testing.assert_array_equal(after, before)


# Degenerate data ----------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [False, True])
def test_duplicated_points_cluster_and_superfluous_clusters_are_warned_of(affine):
    X = np.repeat(np.random.default_rng(0).standard_normal((3, 6)), 20, axis=0)
    exact = quick(n_clusters=3, subspace_dim=1, affine=affine).fit(X)
    assert np.bincount(exact.labels_).tolist() == [20, 20, 20]
    assert exact.inertia_ < 1e-10
    with pytest.warns(ConvergenceWarning, match="2 of the 5 clusters ended up empty"):
        model = quick(n_clusters=5, subspace_dim=1, affine=affine).fit(X)
    assert np.bincount(model.labels_).tolist() == [20, 20, 20]
    np.testing.assert_array_equal(model.labels_, model.predict(X))


@pytest.mark.parametrize("affine", [False, True])
def test_as_many_clusters_as_samples(affine):
    X = np.random.default_rng(0).standard_normal((6, 5))
    model = quick(n_clusters=6, subspace_dim=1, affine=affine).fit(X)
    assert sorted(model.labels_) == list(range(6))


@pytest.mark.filterwarnings("ignore:.*clusters ended up empty")
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dim", [4, "auto"])
def test_fewer_samples_than_dimensions(affine, dim):
    X = np.random.default_rng(0).standard_normal((3, 5))
    model = quick(n_clusters=2, subspace_dim=dim, affine=affine).fit(X)
    assert model.inertia_ < 1e-10
    np.testing.assert_array_equal(model.labels_, model.predict(X))


@pytest.mark.parametrize("affine", [False, True])
def test_one_odd_sample_in_constant_data_gets_its_own_cluster(affine):
    X = np.ones((5000, 6))
    X[17] = [5, 1, -3, 2, 0, 1]
    labels = quick(n_clusters=2, subspace_dim=1, affine=affine).fit_predict(X)
    assert np.flatnonzero(labels == 1).tolist() == [17]


def test_zero_samples_are_no_obstacle():
    X, y, _ = union()
    X[::10] = 0
    labels = quick().fit_predict(X)
    assert clustering_accuracy(np.delete(y, np.s_[::10]), np.delete(labels, np.s_[::10])) > 0.99


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("value", [0.0, 1.0, 100.0])
def test_constant_columns_do_not_hide_the_dimension(value, affine):
    X, y, _ = make_union_of_subspaces(
        300, 3, 12, 2, noise=0.02, affine=affine, random_state=0, dtype=np.float64
    )
    constant = np.hstack([X, np.full((300, 5), value)])
    model = KSubspaces(3, affine=affine, n_init=2, random_state=0).fit(constant)
    assert clustering_accuracy(y, model.labels_) > 0.99
    # A linear subspace that holds a constant has one dimension for it.
    assert model.subspace_dims_.tolist() == [2 + (value > 0 and not affine)] * 3
