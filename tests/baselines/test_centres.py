"""What methods with centres and networks promise: scikit-learn's manners and clear refusals."""

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from kscn import baselines
from kscn.baselines.kmeans import nearest_centre
from kscn.data import as_source
from kscn.errors import InputError, KscnError

rng = np.random.default_rng(0)
CENTRES = rng.standard_normal((3, 16)) * 4
X = (CENTRES[np.arange(60) % 3] + rng.standard_normal((60, 16))).astype(np.float32)
IMAGES = X.reshape(60, 4, 4)
METHODS = ("k-means", "pca-ks", "sae-km", "cae-km", "dec", "idec", "dcn", "dcn-cae")
NETWORK = {"pretrain_epochs": 1, "batch_size": 16, "n_init": 2, "cache": False}
DENSE = NETWORK | {"autoencoder_params": {"hidden": (8,), "latent_dim": 4}, "layer_epochs": 1}
CONVOLUTIONAL = NETWORK | {"autoencoder_params": {"channels": (2,), "kernels": (3,)}}
# What makes a test of manners quick.
QUICK = {
    "k-means": {"n_init": 2},
    "pca-ks": {"n_init": 2},
    "sae-km": DENSE,
    "cae-km": CONVOLUTIONAL,
    "dec": DENSE | {"max_iter": 1, "update_every": 2},
    "idec": DENSE | {"max_iter": 1, "update_every": 2},
    "dcn": DENSE | {"epochs": 1},
    "dcn-cae": CONVOLUTIONAL | {"epochs": 1},
}
every_method = pytest.mark.parametrize("name", METHODS)


def method(name, k=3, **params):
    return baselines.make(name, k, **{"random_state": 0} | QUICK[name] | params)


def enough(name):
    """A setting with which a method also clusters the blobs of scikit-learn's checks."""
    more = {} if name in ("k-means", "pca-ks") else {"pretrain_epochs": 10}
    return method(name, **more)


# What these check is in the shared base classes, so one of each kind is enough.
@parametrize_with_checks([enough("k-means"), enough("pca-ks"), enough("dec")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_method
def test_the_same_seed_gives_the_same_labels(name):
    one, two = method(name).fit(IMAGES), method(name).fit(IMAGES)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.random_state_ == 0


@every_method
def test_a_fit_leaves_its_results_and_predict_repeats_them(name):
    # A seed that is drawn, but not any: one in many leaves networks this small dead.
    model = method(name, random_state=np.random.RandomState(3))
    labels = model.fit_predict(IMAGES)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_array_equal(labels, model.predict(IMAGES))
    np.testing.assert_array_equal(labels[20:30], model.predict(IMAGES[20:30]))
    assert labels.shape == (60,) and set(labels) <= {0, 1, 2}
    assert labels.dtype == np.int32
    assert (np.diff(np.bincount(labels, minlength=3)) <= 0).all()
    assert model.n_features_in_ == 16
    assert model.n_iter_ >= 1
    # The seed that was drawn repeats the result.
    again = method(name, random_state=model.random_state_).fit_predict(IMAGES)
    np.testing.assert_array_equal(again, labels)


@every_method
def test_a_clone_has_the_parameters_and_no_results(name):
    model = method(name).fit(IMAGES)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    with pytest.raises(NotFittedError):
        copy.predict(IMAGES)


@every_method
def test_the_container_does_not_matter(name, tmp_path):
    expected = method(name).fit_predict(IMAGES)
    np.save(tmp_path / "x.npy", IMAGES)
    for same in (
        torch.from_numpy(IMAGES),
        torch.utils.data.TensorDataset(torch.from_numpy(IMAGES)),
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        tmp_path / "x.npy",
        as_source(IMAGES),
    ):
        np.testing.assert_array_equal(method(name).fit_predict(same), expected)


@every_method
def test_callbacks_see_everything(name):
    records = []
    model = method(name, callbacks=[lambda estimator, record: records.append(record)])
    model.fit(IMAGES)
    assert records == model.history_ and records
    assert all("stage" in record and record["seconds"] >= 0 for record in records)


BAD = {
    "NaN": (np.where(np.arange(60)[:, None, None] == 7, np.nan, IMAGES), "contains NaN"),
    "infinity": (np.where(np.arange(60)[:, None, None] == 7, np.inf, IMAGES), "infinity"),
    "sparse": (scipy.sparse.csr_array(X), "sparse matrix"),
    "too few": (IMAGES[:2], r"n_samples=2 should be >= n_clusters=3"),
    "one axis": (X[0], "Expected 2D array"),
    "words": (np.array([["a", "b"]] * 5), "not numbers"),
    "equal": (np.ones((10, 4, 4)), "All 10 samples of X are equal"),
}


@every_method
@pytest.mark.parametrize("kind", BAD)
def test_bad_samples_are_refused_in_words(name, kind):
    samples, words = BAD[kind]
    with pytest.raises(InputError, match=words):
        method(name).fit(samples)


@pytest.mark.parametrize("name", ["k-means", "pca-ks", "dec", "dcn-cae"])
@pytest.mark.parametrize(
    "params, words",
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"n_clusters": 2.0}, "n_clusters=2.0"),
        ({"random_state": -1}, "random_state=-1"),
        ({"callbacks": "print"}, "callbacks"),
        ({"device": "abacus"}, "device='abacus'"),
    ],
)
def test_bad_arguments_are_refused_by_name(name, params, words):
    with pytest.raises(InputError, match=words):
        method(name).set_params(**params).fit(IMAGES)


@every_method
def test_new_samples_must_fit_the_old(name):
    model = method(name).fit(IMAGES)
    with pytest.raises(InputError, match=r"9 features.* expecting 16"):
        model.predict(IMAGES[:, :3, :3])
    with pytest.raises(InputError, match="contains NaN"):
        model.predict(np.full((2, 4, 4), np.nan))


@every_method
def test_a_fit_that_fails_leaves_no_old_labels(name):
    model = method(name).fit(IMAGES)
    with pytest.raises(KscnError):
        model.fit(IMAGES[:2])
    assert not hasattr(model, "labels_")


def test_empty_clusters_are_told():
    two_places = np.repeat([[0.0, 0.0], [1.0, 1.0]], 5, axis=0)
    with pytest.warns(ConvergenceWarning, match="1 of the 3 clusters ended up empty"):
        method("k-means").fit(two_places)


def test_the_nearest_centre_is_found_in_any_precision():
    far = X + 1e6  # expanding the square would leave nothing of the distances
    centres = CENTRES.astype(np.float32) + 1e6
    labels, distance = nearest_centre(as_source(far), centres)
    apart = ((far[:, None].astype(np.float64) - centres.astype(np.float64)) ** 2).sum(axis=2)
    np.testing.assert_array_equal(labels, apart.argmin(axis=1))
    np.testing.assert_allclose(distance, apart.min(axis=1))
