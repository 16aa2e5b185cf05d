"""Every kind of input gives the same clustering; what cannot be used is refused in words."""

import numpy as np
import pytest

from kscn import KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.errors import InputError

pandas = pytest.importorskip("pandas")


def quick(**params):
    return KSubspaces(
        **{"n_clusters": 3, "subspace_dim": 2, "n_init": 1, "random_state": 0} | params
    )


def union(n=200, **kwargs):
    return make_union_of_subspaces(n, 3, 12, 2, noise=0.1, random_state=0, **kwargs)[0]


X = union()


@pytest.mark.parametrize("batch_size", [1, 50, 199, 200, 10**6])
def test_the_batch_size_does_not_matter(batch_size):
    expected = quick().fit(X)
    model = quick(batch_size=batch_size).fit(X)
    np.testing.assert_array_equal(model.labels_, expected.labels_)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "uint16", "int32", "int64", "uint64", "float16"]
)
def test_integers_and_half_precision_cluster_like_floats(dtype, affine):
    scaled = np.round(20 * X) + (64 if dtype.startswith("u") else 0)
    stored = scaled.astype(dtype)
    np.testing.assert_array_equal(stored.astype(np.float64), scaled)  # nothing was cut off
    model = quick(affine=affine).fit(stored)
    wide = np.dtype(dtype).itemsize > 2
    expected = quick(affine=affine).fit(scaled.astype(np.float64 if wide else np.float32))
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert model.subspaces_.dtype == (np.float64 if wide else np.float32)


def test_truth_values_are_zeros_and_ones():
    flags = X > 0
    expected = quick().fit(flags.astype(np.float32))
    np.testing.assert_array_equal(quick().fit(flags).labels_, expected.labels_)


def test_images_of_bytes_cluster_like_flat_floats():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 5, 4), dtype=np.uint8)
    flat = images.reshape(60, 20).astype(np.float32)
    expected = quick().fit(flat)
    model = quick().fit(images)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.predict(flat), expected.labels_)


@pytest.mark.parametrize("affine", [False, True])
def test_double_precision_is_kept(affine):
    data = union(dtype=np.float64, affine=affine)
    exact, _, _ = make_union_of_subspaces(
        200, 3, 12, 2, noise=1e-6, affine=affine, random_state=0, dtype=np.float64
    )
    assert quick(affine=affine).fit(data).subspaces_.dtype == np.float64
    model = quick(affine=affine, tol=0).fit(exact)
    assert model.residuals(exact).dtype == np.float64
    # 200 samples, 12 - 2 directions of noise less some that the fit takes up; float32 cannot.
    freedom = 200 * 10 - 3 * 2 * 10 - (3 * 10 if affine else 0)
    assert model.inertia_ == pytest.approx(freedom * 1e-12, rel=0.1)


def test_feature_names_of_a_data_frame_are_checked():
    frame = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(12)])
    model = quick().fit(frame)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"pixel0": "other"}))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X)


# Refusals -----------------------------------------------------------------------------------------


def test_samples_that_only_look_equal_are_not_refused():
    X = np.ones((5000, 4))
    X[-1, -1] = 2
    assert (quick(n_clusters=2).fit(X).predict(X[-2:]) == [0, 1]).all()


REFUSED = {
    "too large": (
        lambda: np.where(X.max() == X, np.float32(1e30), X),
        "too large for their squares",
    ),
    "one feature": (lambda: X[:, :1], "X has 1 feature.*at least 2"),
    "constant": (lambda: np.ones((9000, 4)), "All 9000 samples of X are equal; there is nothing"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_clustered_is_refused_in_one_sentence(kind):
    make, words = REFUSED[kind]
    with pytest.raises(InputError, match=words) as caught:
        quick().fit(make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("init", ["k-means", "labels", "bases"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_bad_value_is_found_wherever_it_is_and_however_the_fit_starts(value, init):
    data, labels, bases = make_union_of_subspaces(6000, 3, 12, 2, noise=0.1, random_state=0)
    starts = {"k-means": "k-means", "labels": labels, "bases": bases}
    for row in (0, 1, 2, 3, 5999):  # some are in the subsample of the search, some are not
        bad = data.copy()
        bad[row, 3] = value
        with pytest.raises(InputError, match="Input X contains"):
            quick(init=starts[init], n_init=1).fit(bad)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_init": 0}, "n_init=0 must be an integer of at least 1"),
        ({"tol": -1e-4}, "tol=-0.0001 must be a number of at least 0"),
        ({"trim": 0.5}, "trim=0.5 must be a number of at least 0 and below 0.5"),
        ({"subspace_dim": 12}, "subspace_dim=12 must be between 1 and 11: a subspace as large"),
        ({"subspace_dim": [2, 2, 12]}, r"subspace_dim=\[2, 2, 12\] must be between 1 and 11"),
        ({"subspace_dim": [2, 2]}, "a list of n_clusters=3 ints"),
        ({"subspace_dim": "many"}, "subspace_dim='many' must be 'auto', one int"),
        ({"init": "best"}, "init='best' must be 'auto', .* or an array of labels or bases"),
        ({"init": np.full(200, 3)}, "init as labels must hold 200 integers from 0 to 2"),
        ({"init": np.zeros(200)}, "init as labels must hold 200 integers from 0 to 2"),
        ({"init": np.zeros((3, 12, 3))}, r"init has shape \(3, 12, 3\); .* bases \(3, 12, 2\)"),
        ({"init": np.full((3, 12, 2), np.nan)}, "init holds NaN or infinity"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_settings_are_refused_and_named(params, words):
    with pytest.raises(InputError, match=words):
        quick(**params).fit(X)


@pytest.mark.parametrize("init", ["auto", "k-means", "neighbours"])
@pytest.mark.parametrize("affine", [False, True])
def test_as_many_rows_as_clusters_are_a_cluster_each(init, affine):
    X = np.random.default_rng(0).normal(size=(2, 8))
    labels = KSubspaces(2, init=init, affine=affine, random_state=0).fit_predict(X)
    assert sorted(labels) == [0, 1]
