"""Every kind of input gives the same clustering; what cannot be used is refused in words."""

import functools

import numpy as np
import pytest
import scipy.sparse
import torch

from kscn import KSubspaces
from kscn.data import as_source, make_union_of_subspaces
from kscn.errors import InputError, KscnError

pandas = pytest.importorskip("pandas")


def quick(**params):
    return KSubspaces(
        **{"n_clusters": 3, "subspace_dim": 2, "n_init": 1, "random_state": 0} | params
    )


def union(n=200, **kwargs):
    return make_union_of_subspaces(n, 3, 12, 2, noise=0.1, random_state=0, **kwargs)[0]


X = union()


@functools.cache
def reference(affine):
    """The model that every way of passing X must give."""
    return quick(affine=affine).fit(X)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return torch.from_numpy(X[index]), 0


INPUTS = {
    "non-contiguous": lambda: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": lambda: X[::-1].copy()[::-1],
    "Fortran order": lambda: np.asfortranarray(X),
    "read-only": lambda: read_only(X),
    "big-endian": lambda: X.astype(">f4"),
    "tensor": lambda: torch.from_numpy(X),
    "tensor with gradient": lambda: torch.from_numpy(X.copy()).requires_grad_(),
    "transposed tensor": lambda: torch.from_numpy(np.ascontiguousarray(X.T)).T,
    "torch data set": Samples,
    "source": lambda: as_source(X),
    "images n x h x w": lambda: X.reshape(-1, 3, 4),
    "images n x c x h x w": lambda: X.reshape(-1, 2, 3, 2),
    "data frame": lambda: pandas.DataFrame(X),
}


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("kind", INPUTS)
def test_the_container_does_not_matter(kind, affine):
    expected = reference(affine)
    model = quick(affine=affine).fit(INPUTS[kind]())
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.subspaces_, expected.subspaces_)
    np.testing.assert_array_equal(model.predict(INPUTS[kind]()), expected.labels_)
    assert model.n_features_in_ == 12


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_maps_and_files_do_not_matter(mode, tmp_path):
    np.save(tmp_path / "X.npy", X)
    expected = quick().fit(X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode=mode)
    np.testing.assert_array_equal(quick().fit(mapped).labels_, expected.labels_)
    np.testing.assert_array_equal(quick().fit(tmp_path / "X.npy").labels_, expected.labels_)
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X)


def test_lists_of_lists_are_arrays():
    expected = quick().fit(X.astype(np.float64))
    np.testing.assert_array_equal(quick().fit(X.tolist()).labels_, expected.labels_)


@pytest.mark.parametrize("batch_size", [1, 50, 199, 200, 10**6])
def test_the_batch_size_does_not_matter(batch_size):
    expected = quick().fit(X)
    model = quick(batch_size=batch_size).fit(X)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    # With the very same subspaces, distances agree to the bit.
    residuals = expected.residuals(X)
    expected.batch_size = batch_size
    np.testing.assert_array_equal(expected.residuals(X), residuals)


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


def test_single_precision_is_used_for_single_precision_input():
    model = quick(affine=True).fit(X)
    assert model.subspaces_.dtype == model.offsets_.dtype == np.float32
    assert model.transform(X).dtype == np.float32


@pytest.mark.parametrize("affine", [False, True])
def test_nothing_is_written_to_the_input(affine):
    given = X.copy()
    weights = np.ones(len(X))
    model = quick(affine=affine).fit(given, sample_weight=weights)
    model.predict(given)
    np.testing.assert_array_equal(given, X)
    assert (weights == 1).all()


def test_feature_names_of_a_data_frame_are_checked():
    frame = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(12)])
    model = quick().fit(frame)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"pixel0": "other"}))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X)


# Refusals -----------------------------------------------------------------------------------------


def spoilt(value):
    bad = X.copy()
    bad[150, 5] = value
    return bad


REFUSED = {
    "NaN": (lambda: spoilt(np.nan), "Input X contains NaN; remove or replace these samples"),
    "infinity": (lambda: spoilt(np.inf), "Input X contains infinity; remove or replace"),
    "too large": (lambda: spoilt(1e30), "too large for their squares"),
    "one-dimensional": (lambda: X[0], r"Expected 2D array, got 1D array instead: X has shape"),
    "scalar": (lambda: np.float32(3), "Expected 2D array, got scalar array"),
    "no samples": (lambda: X[:0], r"X is empty: found array with 0 sample\(s\)"),
    "no features": (lambda: X[:, :0], r"X is empty: found array with 0 feature\(s\)"),
    "one feature": (lambda: X[:, :1], "X has 1 feature.*at least 2"),
    "constant": (lambda: np.ones((50, 4)), "All 50 samples of X are equal; there is nothing to"),
    "zero": (lambda: np.zeros((50, 4)), "All 50 samples of X are equal"),
    "constant and many": (lambda: np.ones((9000, 4)), "All 9000 samples of X are equal"),
    "too few samples": (lambda: X[:2], "n_samples=2 should be >= n_clusters=3; give more samples"),
    "sparse matrix": (lambda: scipy.sparse.csr_matrix(X), "X is a sparse matrix; pass a dense"),
    "sparse array": (lambda: scipy.sparse.coo_array(X), "X is a sparse matrix; pass a dense"),
    "sparse tensor": (lambda: torch.from_numpy(X).to_sparse(), "X is a sparse tensor; pass a"),
    "complex": (lambda: X.astype(complex), "Complex data not supported"),
    "complex tensor": (lambda: torch.from_numpy(X) * 1j, "Complex data not supported"),
    "strings": (lambda: np.full((50, 4), "a"), "not numbers; convert it to floats"),
    "objects": (lambda: np.full((50, 4), "a", dtype=object), "not numbers"),
    "dates": (lambda: np.zeros((50, 4), "M8[D]"), "not numbers"),
    "ragged": (lambda: [[1.0, 2.0], [1.0]], "rows differ in length"),
    "nothing": (lambda: None, "."),
}


@pytest.mark.parametrize("method", ["fit", "fit_predict"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_clustered_is_refused_in_one_sentence(kind, method):
    make, words = REFUSED[kind]
    with pytest.raises(InputError, match=words) as caught:
        getattr(quick(), method)(make())
    assert isinstance(caught.value, KscnError)
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
        ({"n_clusters": 0}, "n_clusters=0 must be an integer of at least 1"),
        ({"n_clusters": 2.0}, "n_clusters=2.0 must be an integer"),
        ({"n_clusters": True}, "n_clusters=True must be an integer"),
        ({"n_clusters": "3"}, "n_clusters='3' must be an integer"),
        ({"n_clusters": 201}, "n_samples=200 should be >= n_clusters=201"),
        ({"n_init": 0}, "n_init=0 must be an integer of at least 1"),
        ({"n_init": None}, "n_init=None must be an integer"),
        ({"max_iter": 0}, "max_iter=0 must be an integer of at least 1"),
        ({"batch_size": 0}, "batch_size=0 must be an integer of at least 1"),
        ({"batch_size": 2.5}, "batch_size=2.5 must be an integer"),
        ({"tol": -1e-4}, "tol=-0.0001 must be a number of at least 0"),
        ({"tol": np.nan}, "tol=nan must be a number"),
        ({"tol": "small"}, "tol='small' must be a number"),
        ({"trim": -0.1}, "trim=-0.1 must be a number of at least 0 and below 0.5"),
        ({"trim": 0.5}, "trim=0.5 must be a number of at least 0 and below 0.5"),
        ({"trim": None}, "trim=None must be a number"),
        ({"subspace_dim": 0}, "subspace_dim=0 must be between 1 and 11"),
        ({"subspace_dim": 12}, "subspace_dim=12 must be between 1 and 11: a subspace as large"),
        ({"subspace_dim": [2, 2, 12]}, r"subspace_dim=\[2, 2, 12\] must be between 1 and 11"),
        ({"subspace_dim": [2, 2]}, "a list of n_clusters=3 ints"),
        ({"subspace_dim": []}, "a list of n_clusters=3 ints"),
        ({"subspace_dim": 2.0}, "subspace_dim=2.0 must be 'auto', one int, or a list"),
        ({"subspace_dim": None}, "subspace_dim=None must be 'auto', one int, or a list"),
        ({"subspace_dim": "many"}, "subspace_dim='many' is not known; use 'auto'"),
        (
            {"init": "best"},
            "init='best' must be 'auto', 'neighbours', .*'random' or an array of labels or bases",
        ),
        ({"init": None}, "init"),
        ({"init": ["a"] * 200}, "init"),
        ({"init": np.zeros(199, dtype=int)}, "init as labels must hold 200 integers from 0 to 2"),
        ({"init": np.full(200, 3)}, "init as labels must hold 200 integers from 0 to 2"),
        ({"init": np.full(200, -1)}, "init as labels must hold 200 integers from 0 to 2"),
        ({"init": np.zeros(200)}, "init as labels must hold 200 integers from 0 to 2"),
        ({"init": np.zeros((3, 12, 3))}, r"init has shape \(3, 12, 3\); .* bases \(3, 12, 2\)"),
        ({"init": np.full((3, 12, 2), np.nan)}, "init holds NaN or infinity"),
        ({"device": "abacus"}, "device='abacus' cannot be used here"),
        ({"random_state": -1}, r"random_state=-1 must be between 0 and 2\*\*32 - 1"),
        ({"random_state": 2**32}, "random_state=4294967296 must be between 0"),
        ({"callbacks": None}, "callbacks"),
        ({"callbacks": print}, "callbacks"),
        ({"callbacks": ["print"]}, "callbacks"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_settings_are_refused_and_named(params, words):
    with pytest.raises(InputError, match=words):
        quick(**params).fit(X)


def test_a_random_state_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="cannot be used to seed"):
        quick(random_state="lucky").fit(X)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that is there")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="device='cuda'"):
        quick(device="cuda").fit(X)
