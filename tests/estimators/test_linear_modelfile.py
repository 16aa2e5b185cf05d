"""A `KSubspaces` on disk is the same model; a damaged one is refused."""

import json
import shutil

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from kscn import KSubspaces, load_model
from kscn.data import make_union_of_subspaces
from kscn.errors import ModelFileError
from kscn.modelfile import MANIFEST_NAME, TENSORS_NAME, read_model, write_model


def union(dtype=np.float32, affine=False, **kwargs):
    p = kwargs.pop("p", 2)
    return make_union_of_subspaces(
        300, 3, 9, p, noise=0.3, affine=affine, random_state=0, dtype=dtype, **kwargs
    )[0]


def quick(**params):
    return KSubspaces(
        **{"n_clusters": 3, "subspace_dim": 2, "n_init": 1, "random_state": 0} | params
    )


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [2, [1, 2, 3], "auto"])
def test_a_loaded_model_is_the_same_to_the_bit(tmp_path, dim, dtype, affine):
    X = union(dtype, affine) + dtype(5)
    model = quick(subspace_dim=dim, affine=affine).fit(X)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert type(loaded) is KSubspaces
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    for name in ("residuals", "transform", "predict_proba", "score_samples"):
        found, expected = getattr(loaded, name)(X), getattr(model, name)(X)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    for name in ("subspaces_", "offsets_", "subspace_dims_", "spectra_", "cluster_weights_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    for name in ("inertia_", "n_iter_", "noise_variance_", "n_features_in_", "random_state_"):
        assert getattr(loaded, name) == getattr(model, name)


def test_parameters_are_kept_and_the_seed_that_was_used(tmp_path):
    X = union()
    model = quick(trim=0.1, tol=1e-3, batch_size=64, random_state=None, callbacks=[lambda *_: None])
    model.fit(X).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    expected = model.get_params() | {"callbacks": (), "random_state": model.random_state_}
    assert loaded.get_params() == expected
    np.testing.assert_array_equal(clone(loaded).fit(X).labels_, model.labels_)


@pytest.mark.parametrize("dim", [np.array([1, 2, 3]), (1, 2, 3), np.int64(2)])
def test_every_way_to_say_the_dimension_can_be_saved(tmp_path, dim):
    X = union()
    model = quick(subspace_dim=dim).fit(X)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.labels_)


def test_numpy_numbers_as_parameters_can_be_saved(tmp_path):
    X = union()
    params = {"n_clusters": np.int64(3), "trim": np.float32(0.1), "max_iter": np.int32(9)}
    model = quick(affine=np.True_, **params)
    model.fit(X).save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.labels_)


def test_a_given_start_is_not_part_of_the_model(tmp_path):
    X = union()
    model = quick(init=np.arange(300) % 3).fit(X)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.init == KSubspaces().init  # the default
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)


def test_feature_names_are_kept(tmp_path):
    frame = pandas.DataFrame(union(), columns=[f"pixel {i}" for i in range(9)])
    model = quick().fit(frame)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_array_equal(loaded.predict(frame), model.labels_)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[frame.columns[::-1]])


def test_a_loaded_model_can_be_saved_again_and_fitted_again(tmp_path):
    X = union()
    model = quick().fit(X)
    model.save(tmp_path / "one")
    load_model(tmp_path / "one").save(tmp_path / "two")
    loaded = load_model(tmp_path / "two")
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    np.testing.assert_array_equal(loaded.fit(X).labels_, model.labels_)


def test_saving_replaces_an_older_model(tmp_path):
    X = union()
    quick(n_clusters=2).fit(X).save(tmp_path / "model")
    quick().fit(X).save(tmp_path / "model")
    assert load_model(tmp_path / "model").n_clusters == 3


def test_an_unfitted_model_cannot_be_saved(tmp_path):
    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# Damage -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def affine(tmp_path_factory):
    path = tmp_path_factory.mktemp("affine") / "model"
    quick(affine=True).fit(union(affine=True)).save(path)
    return path


@pytest.fixture
def saved(affine, tmp_path):
    return shutil.copytree(affine, tmp_path / "model")


def rewrite(path, change):
    """Save the model again, with a valid checksum, after `change(params, tensors)`."""
    model = read_model(path)
    change(model.params, model.tensors)
    write_model(path, model.kind, model.params, model.tensors)


def drop(*names):
    def change(params, tensors):
        for name in names:
            del tensors[name]

    return change


def replace(name, make):
    def change(params, tensors):
        tensors[name] = make(tensors[name])

    return change


def set_param(name, value):
    def change(params, tensors):
        params["params"][name] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        drop("subspaces"),
        drop("offsets"),
        drop("shift"),
        drop("spectra"),
        replace("subspaces", lambda a: a[0]),
        replace("subspaces", lambda a: 2 * a),
        replace("subspaces", lambda a: np.full_like(a, np.nan)),
        replace("subspaces", lambda a: a[:2]),
        replace("subspaces", lambda a: np.ones(a.shape, dtype=np.int64)),
        replace("subspaces", lambda a: a.astype(np.float16)),
        replace("subspaces", lambda a: a[:0]),
        replace("subspaces", lambda a: a[:, :0]),
        replace("subspaces", lambda a: a[:, :, :0]),
        replace("subspace_dims", lambda a: a + 1),
        replace("subspace_dims", lambda a: a.astype(np.int8)),
        replace("spectra", lambda a: a.astype(np.int64)),
        replace("spectra", lambda a: np.full_like(a, np.inf)),
        replace("cluster_weights", lambda a: np.full_like(a, np.nan)),
        replace("offsets", lambda a: a[:, :4]),
        replace("offsets", lambda a: np.full_like(a, np.nan)),
        replace("shift", lambda a: a[:4]),
        replace("shift", lambda a: np.full_like(a, np.nan)),
        replace("subspace_dims", lambda a: a[:1]),
        replace("cluster_weights", lambda a: a[:1]),
        set_param("n_clusters", 4),
        set_param("colour", "red"),
        set_param("batch_size", "x"),
        set_param("batch_size", 0),
        set_param("trim", 2),
        set_param("affine", "yes"),
        set_param("subspace_dim", 9),
        set_param("random_state", 0.5),
        lambda params, tensors: params.pop("params"),
        lambda params, tensors: params.pop("fitted"),
        lambda params, tensors: params["params"].pop("affine"),
        lambda params, tensors: params["fitted"].pop("inertia"),
        lambda params, tensors: params["fitted"].update(n_iter="many"),
        lambda params, tensors: params["fitted"].update(n_iter="very\nmany " * 1000),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(saved, change):
    rewrite(saved, change)
    with pytest.raises(ModelFileError, match="does not describe a KSubspaces model") as caught:
        load_model(saved)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_subspaces_whose_sums_would_fill_the_memory_are_refused(tmp_path):
    d = 40_000
    tensors = {
        "subspaces": np.eye(d, 1, dtype=np.float32)[None],
        "subspace_dims": np.array([1]),
        "spectra": np.ones((1, d)),
        "cluster_weights": np.ones(1),
    }
    fitted = {"inertia": 0.0, "n_iter": 1, "noise_variance": 0.0, "feature_names": []}
    fitted |= {"temperature": 1.0, "n_features_in": d, "input_shape": [d]}
    params = {"n_clusters": 1, "affine": False, "random_state": 0}
    write_model(tmp_path / "m", "KSubspaces", {"params": params, "fitted": fitted}, tensors)
    with pytest.raises(ModelFileError, match=r"needs 11\.9 GiB"):
        load_model(tmp_path / "m")


def test_a_model_that_was_cut_off_is_refused(saved):
    content = (saved / TENSORS_NAME).read_bytes()
    (saved / TENSORS_NAME).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelFileError, match="cut off"):
        load_model(saved)


def test_a_changed_byte_is_noticed(saved):
    content = bytearray((saved / TENSORS_NAME).read_bytes())
    content[-1] ^= 1
    (saved / TENSORS_NAME).write_bytes(content)
    with pytest.raises(ModelFileError, match="checksum"):
        load_model(saved)


def test_the_manifest_is_plain_json_without_pickles(saved):
    manifest = json.loads((saved / MANIFEST_NAME).read_text())
    assert manifest["kind"] == "KSubspaces"
    assert {entry.name for entry in saved.iterdir()} == {MANIFEST_NAME, TENSORS_NAME}
