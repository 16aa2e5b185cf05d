"""k-means on a pretrained latent; the network that several methods share."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from kscn.data import as_source, load
from kscn.errors import InputError
from kscn.metrics import clustering_accuracy
from kscn_paper import rivals

DIGITS = load("digits")
X, Y = np.asarray(DIGITS.samples)[:600], np.asarray(DIGITS.labels)[:600]
SMALL = {
    "sae": {"autoencoder_params": {"hidden": (64,), "latent_dim": 8}, "layer_epochs": 4},
    "cae": {"autoencoder_params": {"channels": (16, 8), "kernels": (3, 3)}},
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


def make(name, cache, **params):
    kind = "cae" if name.endswith(("cae", "cae-km")) else "sae"
    settings = {"pretrain_epochs": 25, "batch_size": 32, "random_state": 0, "cache": cache}
    return rivals.make(name, 10, **settings | SMALL[kind] | params)


def latents_of(model):
    return np.asarray(model._latents(as_source(X)))


def test_all_methods_begin_with_the_very_same_network(kept):
    latents = latents_of(make("sae-km", kept).fit(X))
    for name, params in {
        "dec": {"max_iter": 0},
        "idec": {"max_iter": 0},
        "dcn": {"epochs": 0},
        "ssc-omp-sae": {},
    }.items():
        model = make(name, kept, **params).fit(X)
        assert model.history_[0]["stage"] == "pretrained"  # and not trained again
        np.testing.assert_array_equal(latents_of(model), latents)


@pytest.mark.parametrize("name", ["sae-km", "cae-km"])
def test_labels_are_those_of_k_means_on_the_latent(name, kept):
    model = make(name, kept).fit(X)
    latents = latents_of(model)
    theirs = KMeans(10, n_init=20, random_state=1).fit(latents)
    assert model.inertia_ == pytest.approx(theirs.inertia_, rel=0.02)
    assert latents.shape == (600, {"sae-km": 8, "cae-km": 32}[name])


@pytest.mark.parametrize(
    "name, params",
    [
        ("sae-km", {}),
        ("cae-km", {}),
        ("dec", {"max_iter": 4, "update_every": 40}),
        ("idec", {"max_iter": 4, "update_every": 40}),
        ("dcn", {"epochs": 5}),
        ("dcn-cae", {"epochs": 5}),
        ("lrr-sae", {}),
    ],
)
def test_digits_are_told_apart_far_better_than_by_chance(name, params, kept):
    model = make(name, kept, **params).fit(X)
    assert clustering_accuracy(Y, model.labels_) > 0.55


def test_a_network_from_the_cache_gives_the_same_labels(tmp_path):
    trained = make("dec", tmp_path, max_iter=2, pretrain_epochs=2).fit(X)
    again = make("dec", tmp_path, max_iter=2, pretrain_epochs=2).fit(X)
    assert again.history_[0]["stage"] == "pretrained"
    np.testing.assert_array_equal(again.cluster_centers_, trained.cluster_centers_)
    np.testing.assert_array_equal(again.labels_, trained.labels_)


def test_the_dense_network_takes_images_flat_and_new_samples_in_either_shape(kept):
    model = make("sae-km", kept).fit(X)
    np.testing.assert_array_equal(model.predict(X.reshape(600, 64)), model.labels_)
    np.testing.assert_array_equal(model.predict(X[5:9]), model.labels_[5:9])


def test_samples_of_another_shape_are_refused(kept):
    with pytest.raises(InputError, match="X has 63 features, but AutoencoderKMeans is expecting"):
        make("sae-km", kept).fit(X).predict(X.reshape(600, 64)[:, 1:])
    with pytest.raises(InputError, match=r"shape \(4, 16\), but AutoencoderKMeans is expecting"):
        make("cae-km", kept).fit(X).predict(X.reshape(600, 4, 16))


def test_vectors_are_refused_where_images_are_needed(kept):
    with pytest.raises(InputError, match="needs images"):
        make("cae-km", kept).fit(X.reshape(600, 64))
