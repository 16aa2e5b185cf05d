"""What a `KSCN` refuses, in words, and before it costs an hour of training."""

import numpy as np
import pytest
import short
import torch
from sklearn.datasets import load_digits
from torch import nn

from kscn.errors import InputError, KscnError, TrainingError
from kscn.nn import DenseAutoencoder

N = 60


def digits():
    return load_digits().images[:N].astype(np.float32)


quick = short.kscn


def refuse(record):
    raise AssertionError("training began before the error was found")


def refused(model, X, error=InputError):
    """The message of the error, which comes before any training."""
    model.set_params(callbacks=[lambda _, record: refuse(record)])
    with pytest.raises(error) as caught:
        model.fit(X)
    assert isinstance(caught.value, KscnError)
    assert "\n" not in str(caught.value)
    with pytest.raises(Exception, match="not fitted yet"):
        model.predict(X)
    return str(caught.value)


# Settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"update": "gradient"}, "update='gradient' must be 'svd' or 'grassmann'"),
        ({"loss": "l2"}, "loss='l2' must be 'auto', 'residual' or 'separation'"),
        ({"init": "random"}, "init='random' must be .*'k-means' or an array of labels"),
        ({"weight": -0.1}, "weight=-0.1 must be 'auto' or a number of at least 0"),
        ({"learning_rate": 0}, "learning_rate=0 must be 'auto' or a number above 0"),
        ({"temperature": 0.0}, "temperature=0.0 must be 'auto' or a number above 0"),
        ({"pretrain_epochs": -1}, "pretrain_epochs=-1 must be 'auto' or an integer of at least 0"),
        ({"epochs": 1.5}, "epochs=1.5 must be 'auto' or an integer"),
        ({"latent_dim": 1}, "latent_dim=1 must be 'auto' or an integer of at least 2"),
        ({"autoencoder": "vae"}, "autoencoder='vae' must be 'auto', 'cae', 'sae' or a torch"),
        ({"autoencoder_params": {"width": 3}}, "do not fit 'cae': .*unexpected keyword"),
        ({"autoencoder_params": {"kernels": [4, 4], "channels": [3, 3]}}, "odd"),
        ({"augment": "cutout"}, "augment='cutout' must be None, 'affine', 'elastic'"),
        ({"augment": {"kind": "affine", "speed": 1}}, "does not fit: .*unexpected keyword"),
        ({"subspace_dim": 16}, "between 1 and 15.* of 16 dimensions"),
        ({"init_dim": 16}, r"init_dim=16 must be between 1 and 15"),
        ({"latent": "whitened", "latent_dim": 4, "subspace_dim": 4}, "3: .* of 4 dim"),
    ],
)
def test_impossible_settings_are_refused_before_training(params, words):
    import re

    assert re.search(words, refused(quick(**params), digits()))


def test_scattering_of_what_are_no_images_is_refused_before_training():
    model = quick(init="scattering", autoencoder="sae", autoencoder_params=None)
    assert "scattering needs images" in refused(model, digits().reshape(N, -1))


@pytest.mark.parametrize("init", [np.zeros(N - 1, dtype=int), np.full(N, 3), np.zeros(N), []])
def test_labels_that_do_not_fit_are_refused(init):
    words = refused(quick(init=init), digits())
    assert f"must hold {N} integers from 0 to 2, one per sample" in words


# Samples ------------------------------------------------------------------------------------------


def test_images_too_small_for_the_network_are_refused():
    words = refused(quick(autoencoder_params=None), np.random.default_rng(0).random((20, 7, 30)))
    assert "images of 7 x 30 are too small for 3 layers" in words
    assert "dense autoencoder" in words


def test_colours_last_are_refused():
    words = refused(quick(), np.random.default_rng(0).random((20, 8, 8, 3)))
    assert "colours last" in words
    assert "X.transpose(0, 3, 1, 2)" in words


def test_vectors_do_not_go_through_a_convolution():
    words = refused(quick(autoencoder="cae"), digits().reshape(N, 64))
    assert "autoencoder='cae' needs images" in words


def test_a_latent_whose_sums_would_not_fit_in_memory_is_refused():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(()))

        def encode(self, x):
            return self.gain * x.flatten(1).repeat(1, 1000)

        def decode(self, z):
            return z[:, :64].unflatten(1, (1, 8, 8))

    words = refused(quick(autoencoder=Wide(), autoencoder_params=None), digits())
    assert "n_clusters=3 in 64000 features needs" in words


def test_few_samples_are_enough_and_fewer_than_a_batch():
    X = digits()
    for n in (3, 5, 31, 33):
        model = quick().fit(X[:n])
        np.testing.assert_array_equal(model.predict(X[:n]), model.labels_)


def test_one_cluster_is_possible():
    for loss in ("residual", "separation"):
        assert (quick(n_clusters=1, loss=loss).fit(digits()).labels_ == 0).all()


# Modules ------------------------------------------------------------------------------------------


class Broken(DenseAutoencoder):
    def __init__(self, **methods):
        super().__init__(64, [9], 4)
        for name, method in methods.items():
            setattr(self, name, method)


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"encode": None}, "'NoneType' object is not callable"),
        ({"decode": None}, "'NoneType' object is not callable"),
        ({"encode": lambda x: (x, x)}, "'tuple' object has no attribute 'ndim'"),
        ({"decode": lambda z: z}, "encode gives (2, 4) and decode (2, 4)"),
        ({"encode": lambda x: x @ torch.ones(3, 3)}, "for samples of (2, 64): mat1 and mat2"),
    ],
)
def test_a_module_that_is_no_autoencoder_is_refused(methods, words):
    if methods.get("encode", 1) is not None and "encode" in methods and "decode" not in methods:
        methods = methods | {"decode": lambda z: z}
    model = quick(autoencoder=Broken(**methods), autoencoder_params=None)
    told = refused(model, digits().reshape(N, 64))
    assert "autoencoder=Broken needs encode(samples) -> (n, d) and decode" in told
    assert words in told


def test_a_module_with_nothing_to_train_is_refused():
    frozen = DenseAutoencoder(64, [9], 4).requires_grad_(False)
    words = refused(quick(autoencoder=frozen, autoencoder_params=None), digits().reshape(N, 64))
    assert "has no parameters that can be trained" in words


# Collapse -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 7.0])
@pytest.mark.parametrize("flat", [False, True])
def test_constant_samples_have_nothing_to_cluster(value, flat):
    X = np.full((N, 8, 8), value)
    model = quick()
    if flat:
        X, model = X.reshape(N, 64), quick(autoencoder_params={"hidden": [9], "latent_dim": 4})
    with pytest.raises(TrainingError, match=r"the latent collapsed.* nothing to cluster"):
        model.fit(X)


@pytest.mark.parametrize("latent", ["identity", "whitened"])
def test_a_module_that_encodes_everything_to_zero_is_noticed(latent):
    class Zero(DenseAutoencoder):
        def encode(self, x):
            return 0 * super().encode(x)

    model = quick(autoencoder=Zero(64, [9], 4), autoencoder_params=None, latent=latent)
    with pytest.raises(TrainingError, match="the latent collapsed"):
        model.fit(digits().reshape(N, 64))
    assert not hasattr(model, "subspaces_")


@pytest.mark.parametrize(("update", "seed"), [("svd", 1), ("grassmann", 0)])
def test_a_latent_shrunk_to_zero_by_the_subspace_loss_is_noticed(update, seed):
    X = load_digits().images[:200]
    model = quick(
        update=update,
        weight=1e5,
        learning_rate=0.05,
        epochs=60,
        tol=0.0,
        pretrain_epochs=1,
        random_state=seed,
    )
    with pytest.raises(TrainingError, match=r"collapsed by epoch \d+ of the alternation.* weight"):
        model.fit(X)


# Breakdown ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "epoch 1 of pretraining"),
        ({"pretrain_epochs": 0}, "epoch 1 of the alternation"),
        ({"pretrain_epochs": 0, "update": "grassmann"}, "of the alternation"),
        ({"batch_size": N}, "collapsed or is no longer finite"),
        ({"batch_size": N, "pretrain_epochs": 0}, "finite after epoch 1 of the alternation"),
    ],
)
def test_a_huge_learning_rate_is_named_with_its_epoch(params, words):
    model = quick(learning_rate=1e30, **params)
    with pytest.raises(TrainingError, match=words) as caught:
        model.fit(digits())
    assert "lower learning_rate" in str(caught.value)
    assert not hasattr(model, "subspaces_")


class HalfDead(DenseAutoencoder):
    """All but one unit of the code are zero, as ReLU leaves them after too large a step."""

    def encode(self, samples):
        code = super().encode(samples)
        return torch.cat([code[:, :1], torch.zeros_like(code[:, 1:])], dim=1)


def test_a_code_with_dead_units_is_named():
    X = digits().reshape(N, -1)
    model = quick(autoencoder=HalfDead(64, (16,), 5), autoencoder_params=None, latent="whitened")
    with pytest.raises(TrainingError, match=r"only 1 of 5 directions of the pretrained code"):
        model.fit(X)
