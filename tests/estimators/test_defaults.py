"""`KSCN(n_clusters)` with nothing else said: what presets give, and what the samples decide."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from kscn import KSCN, load_model
from kscn.errors import InputError
from kscn.estimators import defaults, methods, presets
from kscn.nn import ConvAutoencoder, DenseAutoencoder, network

pytestmark = pytest.mark.filterwarnings("ignore:.*clusters ended up empty")
QUICK = {"pretrain_epochs": 1, "epochs": 1, "n_init": 1, "random_state": 0}
IMAGE, VECTOR = (28, 28), (784,)


def samples(n, *shape):
    return np.random.default_rng(0).random((n, *shape), dtype=np.float32)


def derived(shape, n=None, k=10, **given):
    """What is derived from the data, and what was given."""
    return defaults.kscn_settings(shape, 2**31 if n is None else n, k, given)


# What a preset gives ------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "trim"), [("kscn-s", 0.1), ("kscn-g", 0.0)])
def test_the_paper_preset_holds_what_the_paper_states(method, trim):
    stated = {
        "learning_rate": 1e-3,
        "pretrain_epochs": 200,
        "autoencoder": "cae",
        "autoencoder_params": {"channels": [20, 10, 5], "kernels": [5, 3, 3]},
        "loss": "residual",
        "latent": "identity",
        "subspace_dim": 7,
        "weight": 0.08,
        "trim": trim,
        "init": "k-means",
    }
    model = methods.configured(method, 10, preset="paper", shape=IMAGE, n_samples=70_000)
    assert stated.items() <= model.get_params().items()
    assert stated.items() <= derived(IMAGE, preset="paper", update=model.update).items()


@pytest.mark.parametrize("preset", presets.PRESETS)
def test_vectors_get_a_dense_network(preset):
    given = derived(VECTOR, preset=preset)
    assert given["autoencoder"] == "sae"
    for kind in ("sae", DenseAutoencoder(784)):  # and so do images, if it is asked for
        used = derived(IMAGE, preset=preset, autoencoder=kind)
        assert used["augment"] == given["augment"]


@pytest.mark.parametrize("shape", [(8, 8), (3, 15, 40), (40, 4)])
def test_small_images_have_a_network_that_leaves_enough_of_them(shape):
    found = derived(shape, 1_000)
    full = shape if len(shape) == 3 else (1, *shape)
    assert ConvAutoencoder(full, **found["autoencoder_params"]).latent_dim > found["init_dim"]


@pytest.mark.parametrize("preset", ["papr", 3, None])
def test_a_preset_that_is_not_there_is_refused(preset):
    with pytest.raises(InputError, match=r"preset=.* must be 'tuned' or 'paper'"):
        KSCN(3, preset=preset).fit(samples(9, 8, 8))


# What the samples decide --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [(8, 8), (28, 28), (3, 32, 32), (64, 48), (5, 5), (2, 2), (1, 7), (3, 256, 256), (200, 17),
     (1,), (2,), (5,), (64,), (10_000,)],
)  # fmt: skip
def test_any_samples_have_settings_that_fit_together(shape):
    for n, k in [(3, 1), (3, 2), (11, 10), (100, 3), (5_000, 150), (None, 10)]:
        found = derived(shape, n, k)
        assert set(found) == set(defaults.OPEN)
        assert "auto" not in found.values()
        code = network.code_dim(found["autoencoder"], found["autoencoder_params"], shape)
        assert 2 <= found["latent_dim"] <= code <= 4096
        assert 1 <= found["subspace_dim"] <= found["init_dim"] < found["latent_dim"]
        assert found["subspace_dim"] * k <= max(found["latent_dim"], k)


def test_steps_do_not_depend_on_the_number_of_samples():
    for stage in ("pretrain_epochs", "epochs"):
        steps = []
        for n in (1_500, 6_000, 19_999, 20_000, 60_000):
            found = derived(IMAGE, n)
            steps.append(found[stage] * n / found["batch_size"])
        assert max(steps) < 4 * min(steps)
    assert derived(IMAGE, 50)["epochs"] <= 100  # however few there are


def test_what_is_derived_fits_to_what_was_given():
    assert derived(IMAGE, 5_000, latent_dim=8)["init_dim"] < 8
    assert derived(IMAGE, 5_000, subspace_dim=[9] * 10)["latent_dim"] == 90
    assert derived((8, 8), 60, subspace_dim=20, k=3)["latent_dim"] > 20
    small = {"channels": [4], "kernels": [3]}  # 4 * 4 * 4 = 64
    assert derived((8, 8), 500, autoencoder_params=small, latent_dim=100)["init_dim"] < 64
    plain = derived(IMAGE, 5_000, latent="identity")
    assert (plain["loss"], plain["weight"], plain["init_dim"]) == ("residual", 0.08, None)
    assert derived(IMAGE, 5_000, loss="residual")["weight"] == 0.08
    assert derived(IMAGE, 5_000, augment=None)["augment"] is None
    assert derived(IMAGE, 128, batch_size=1)["epochs"] < derived(IMAGE, 128)["epochs"]


# Fits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "shape"), [(40, (8, 8)), (24, (64, 48)), (40, (3, 32, 32)), (30, (2, 9)), (40, (1,))]
)
def test_any_samples_can_be_fitted(n, shape):
    X = samples(n, *shape)
    model = KSCN(n_clusters=10, **QUICK)
    before = model.get_params()
    labels = model.fit_predict(X)
    assert labels.shape == (n,)
    np.testing.assert_array_equal(model.predict(X), labels)
    assert model.get_params() == before
    assert set(model.settings_) == set(defaults.OPEN)
    assert (model.subspace_dims_ == model.settings_["subspace_dim"]).all()
    assert model.subspaces_.shape[1] <= model.settings_["latent_dim"]


def test_many_copies_of_few_images_can_be_clustered():
    X = samples(5, 8, 8)[np.arange(200) % 5]
    model = KSCN(3, **QUICK).fit(X)
    assert model.settings_["subspace_dim"] < model.settings_["latent_dim"] <= 4
    assert model.settings_["latent_dim"] == model.subspaces_.shape[1]


def test_what_is_given_counts_more_than_what_is_derived():
    params = {"subspace_dim": 2, "latent_dim": 9, "weight": 1.5, "augment": None, "trim": 0.2}
    model = KSCN(4, **params, **QUICK).fit(samples(40, 8, 8))
    assert params.items() <= model.settings_.items()
    assert model.subspaces_.shape == (4, 9, 2)
    torch.manual_seed(0)  # of the weights of the module
    own = KSCN(4, autoencoder=ConvAutoencoder((1, 8, 8), [3], [3]), **QUICK).fit(samples(40, 8, 8))
    assert own.subspaces_.shape[1] == min(20, 3 * 4 * 4)


def test_a_second_fit_derives_anew_and_a_clone_has_nothing_of_the_first():
    model = KSCN(3, **QUICK).fit(samples(40, 8, 8))
    first = dict(model.settings_)
    copied = clone(model)
    assert not hasattr(copied, "settings_")
    assert model.fit(samples(60, 30)).settings_ != first
    assert copied.fit(samples(40, 8, 8)).settings_ == first


def test_a_saved_model_knows_its_settings(tmp_path):
    model = KSCN(3, **QUICK).fit(samples(40, 8, 8))
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.settings_.items() <= model.settings_.items()
    assert {"subspace_dim", "loss", "temperature", "epochs"} <= set(loaded.settings_)
    assert loaded.subspace_dim == "auto"
