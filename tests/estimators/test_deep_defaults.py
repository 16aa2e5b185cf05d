"""`KSCN(n_clusters)` with nothing else said: it works for any samples, and says what it used."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from kscn import KSCN, load_model
from kscn.errors import InputError
from kscn.estimators import presets
from kscn.estimators.presets import derive
from kscn.nn import ConvAutoencoder, DenseAutoencoder

pytestmark = pytest.mark.filterwarnings("ignore:.*clusters ended up empty")
QUICK = {"pretrain_epochs": 1, "epochs": 1, "settings": {"n_init": 1}, "random_state": 0}


def samples(n, *shape):
    return np.random.default_rng(0).random((n, *shape), dtype=np.float32)


@pytest.mark.parametrize(
    ("n", "shape"),
    [(40, (8, 8)), (40, (28, 28)), (40, (3, 32, 32)), (24, (64, 48)), (40, (5, 5)), (30, (2, 9)),
     (12, (8, 8)), (40, (64,)), (40, (3,)), (40, (1,)), (12, (200,))],
)  # fmt: skip
def test_any_samples_can_be_fitted(n, shape):
    X = samples(n, *shape)
    model = KSCN(n_clusters=10, **QUICK)
    before = model.get_params()
    labels = model.fit_predict(X)
    assert labels.shape == (n,)
    np.testing.assert_array_equal(model.predict(X), labels)
    assert model.get_params() == before
    assert set(model.settings_) == set(derive.OPEN)
    assert (model.subspace_dims_ == model.settings_["subspace_dim"]).all()
    assert model.subspaces_.shape[1] <= model.settings_["latent_dim"]


def test_two_samples_can_be_two_clusters():
    model = KSCN(2, **QUICK).fit(samples(2, 8, 8))
    assert model.labels_.shape == (2,)


def test_many_copies_of_few_images_can_be_clustered():
    X = samples(5, 8, 8)[np.arange(200) % 5]
    model = KSCN(3, **QUICK).fit(X)
    assert model.settings_["subspace_dim"] < model.settings_["latent_dim"] <= 4
    assert model.settings_["latent_dim"] == model.subspaces_.shape[1]


def test_what_is_given_counts_more_than_what_is_derived():
    params = {"subspace_dim": 2, "latent_dim": 9, "weight": 1.5, "augment": None, "trim": 0.2}
    model = KSCN.from_settings(4, **params, **QUICK).fit(samples(40, 8, 8))
    assert params.items() <= model.settings_.items()
    assert model.subspaces_.shape == (4, 9, 2)
    own = KSCN(4, autoencoder=ConvAutoencoder((1, 8, 8), [3], [3]), **QUICK).fit(samples(40, 8, 8))
    assert own.subspaces_.shape[1] == min(20, 3 * 4 * 4)
    flat = KSCN(4, autoencoder=DenseAutoencoder(64, [9], 7), **QUICK).fit(samples(40, 8, 8))
    assert flat.subspaces_.shape[1] == 7


def test_a_second_fit_derives_anew_and_a_clone_has_nothing_of_the_first():
    model = KSCN(3, **QUICK).fit(samples(40, 8, 8))
    first = dict(model.settings_)
    copied = clone(model)
    assert not hasattr(copied, "settings_")
    assert model.fit(samples(60, 30)).settings_ != first
    assert copied.fit(samples(40, 8, 8)).settings_ == first


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_the_preset_of_the_paper_is_what_the_command_line_uses(update):
    from kscn.estimators import methods

    X = load_digits().images[:45].repeat(2, 1).repeat(2, 2)  # 16 x 16
    short = {"pretrain_epochs": 1, "epochs": 1, "init": "k-subspaces", "random_state": 0}
    model = KSCN.from_preset("paper", n_clusters=3, update=update, **short).fit(X)
    method = presets.method_of(update)
    other = methods.configured(
        method, 3, preset="paper", shape=(16, 16), n_samples=45, **short
    ).fit(X)
    stated = {"loss": "residual", "latent": "identity", "weight": 0.08, "subspace_dim": 7}
    assert stated.items() <= model.settings_.items()
    assert model.settings_["trim"] == (0.1 if update == "svd" else 0.0)
    assert model.settings_ == other.settings_
    assert model.settings_.items() <= methods.settings(other).items()
    np.testing.assert_array_equal(model.labels_, other.labels_)
    np.testing.assert_array_equal(model.subspaces_, other.subspaces_)


def test_a_preset_can_be_taken_for_a_named_data_set():
    model = KSCN.from_preset("paper", 10, dataset="fashion-mnist", weight=1.0)
    assert (model.n_clusters, model.subspace_dim, model.weight) == (10, 11, 1.0)
    assert KSCN.from_preset("paper", dataset="mnist-test", update="grassmann").settings["trim"] == 0
    digits = KSCN.from_preset("paper", 10, dataset="digits", **QUICK | {"init": "k-means"})
    assert digits.fit(load_digits().images[:60]).subspaces_.shape == (10, 40, 4)
    assert KSCN.from_preset("tuned", 10).get_params() == KSCN(10).get_params()


def test_presets_and_data_sets_that_are_not_there_are_refused_in_words():
    with pytest.raises(InputError, match="'papr' is no known preset"):
        KSCN.from_preset("papr")
    with pytest.raises(InputError, match="'papr' is no known preset"):
        KSCN(3, preset="papr").fit(samples(9, 8, 8))
    with pytest.raises(InputError, match="preset=3 must be the name of a preset"):
        KSCN(3, preset=3).fit(samples(9, 8, 8))
    with pytest.raises(InputError, match="no section for the data set 'cifar'; it has mnist"):
        KSCN.from_preset("paper", dataset="cifar")


def test_a_saved_model_knows_its_settings(tmp_path):
    X = samples(40, 8, 8)
    model = KSCN(3, **QUICK).fit(X)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.settings_.items() <= model.settings_.items()
    assert {"subspace_dim", "loss", "temperature", "epochs"} <= set(loaded.settings_)
    assert loaded.subspace_dim == "auto"
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
