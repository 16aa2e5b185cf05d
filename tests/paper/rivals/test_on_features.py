"""Affinity methods on latents: the same as by hand, and settings that find their way."""

import numpy as np
import pytest
from sklearn.base import clone

from kscn.data import as_source, make_union_of_subspaces
from kscn.errors import InputError
from kscn_paper import rivals

X, Y, _ = make_union_of_subspaces(80, 3, 16, 2, noise=0.02, random_state=0)
IMAGES = X.reshape(80, 4, 4)


def quick(name="lrr-sae", k=3, **params):
    network = (
        {"hidden": (12,), "latent_dim": 6}
        if name.endswith("sae")
        else {"channels": (2,), "kernels": (3,)}
    )
    settings = {
        "autoencoder_params": network,
        "layer_epochs": 1,
        "pretrain_epochs": 2,
        "batch_size": 16,
        "cache": False,
        "random_state": 0,
    }
    return rivals.make(name, k, **settings | params)


def latents_of(model, samples):
    return np.asarray(model._latents(as_source(samples)))


@pytest.mark.parametrize("name", rivals.COMPOSITES)
def test_labels_are_those_of_the_method_on_the_latents(name):
    model = quick(name).fit(IMAGES)
    method, _, features = name.rpartition("-")
    alone = rivals.make(method, 3, random_state=0).fit(latents_of(model, IMAGES))
    np.testing.assert_array_equal(model.labels_, alone.labels_)
    assert type(model.clusterer_) is type(alone) and model.clusterer_.random_state_ == 0
    assert model.affinity_.shape == (80, 80)
    assert model.get_params()["autoencoder"] == features
    assert not hasattr(model, "predict")


def test_the_network_can_learn_from_more_than_is_clustered():
    few = quick(pretrain_on=X).fit(X[:40])
    whole = quick().fit(X)
    np.testing.assert_allclose(latents_of(few, X), latents_of(whole, X))
    assert few.labels_.shape == (40,)


def test_other_samples_for_the_network_must_be_of_the_same_kind():
    with pytest.raises(InputError, match=r"pretrain_on has samples of shape \(15,\)"):
        quick(pretrain_on=X[:, :15]).fit(X)


def test_a_clone_has_its_own_parameters():
    model = quick("ssc-omp-sae", method_params={"n_nonzero": 2})
    clone(model).set_params(method_params={"n_nonzero": 3})
    assert model.method_params == {"n_nonzero": 2}


@pytest.mark.parametrize(
    "params, words",
    [
        ({"max_samples": 79}, r"max_samples=79 .* got 80"),
        ({"method": "dsc-net"}, "method='dsc-net'"),
        ({"method_params": {"callbacks": 3}}, "'callbacks' is not a parameter"),
        ({"max_iter": 0}, "max_iter=0"),
    ],
)
def test_what_the_method_would_refuse_is_refused_before_the_network_is_trained(params, words):
    model = quick(pretrain_epochs=10**9)
    given = dict(params)
    inside = {name: given.pop(name) for name in ("max_samples", "max_iter") if name in given}
    model.set_params(**({"method_params": inside} if inside else {}) | given)
    with pytest.raises(InputError, match=words):
        model.fit(X)
