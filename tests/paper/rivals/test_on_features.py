"""Affinity methods on latents: the same as by hand, and settings that find their way."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from kscn.data import make_union_of_subspaces
from kscn.errors import InputError
from kscn_paper import rivals as baselines
from kscn_paper.rivals import autoencoder, on_features
from kscn_paper.rivals.on_features import OnFeatures

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
    return baselines.make(name, k, **settings | params)


@pytest.mark.parametrize("name", baselines.COMPOSITES)
def test_labels_are_those_of_the_method_on_the_latents(name):
    model = quick(name).fit(IMAGES)
    method, _, features = name.rpartition("-")
    alone = baselines.make(method, 3, random_state=0).fit(model.transform(IMAGES))
    np.testing.assert_array_equal(model.labels_, alone.labels_)
    assert type(model.clusterer_) is type(alone) and model.clusterer_.random_state_ == 0
    assert model.affinity_.shape == (80, 80)
    assert model.get_params()["autoencoder"] == features
    assert not hasattr(model, "predict")


def test_the_network_can_learn_from_more_than_is_clustered():
    few = quick(pretrain_on=X).fit(X[:40])
    whole = quick().fit(X)
    np.testing.assert_allclose(few.transform(X), whole.transform(X))
    assert few.labels_.shape == (40,)


def test_other_samples_for_the_network_must_be_of_the_same_kind():
    with pytest.raises(InputError, match=r"pretrain_on has samples of shape \(15,\)"):
        quick(pretrain_on=X[:, :15]).fit(X)


def test_parameters_go_to_the_method_or_to_the_network():
    model = baselines.make("ssc-sae", 4, alpha=50, max_samples=90, pretrain_epochs=7)
    assert model.get_params()["method_params"] == {"alpha": 50, "max_samples": 90}
    assert model.get_params()["pretrain_epochs"] == 7
    both = baselines.make("ssc-sae", 4, alpha=50, method_params={"max_iter": 9})
    assert both.method_params == {"alpha": 50, "max_iter": 9}
    fitted = quick("ssc-omp-sae", n_nonzero=2).fit(X)
    assert fitted.clusterer_.n_nonzero == 2


def test_a_clone_has_its_own_parameters():
    model = quick("ssc-omp-sae", n_nonzero=2)
    clone(model).set_params(method_params={"n_nonzero": 3})
    assert model.method_params == {"n_nonzero": 2}


def test_an_unknown_parameter_is_answered_with_those_of_both():
    with pytest.raises(InputError, match=r"'depth' is not a parameter of ssc-sae.*cache.*alpha"):
        baselines.make("ssc-sae", 3, depth=1)


def test_the_history_goes_on_with_that_of_the_method():
    heard = []
    model = quick(callbacks=[lambda m, record: heard.append((m, record))]).fit(X)
    assert [record for _, record in heard] == model.history_
    assert all(told is model for told, _ in heard)
    stages = [record["stage"] for record in model.history_]
    assert stages[:4] == ["pretrain layer 1", "pretrain layer 2", "pretrain", "pretrain"]
    assert stages[4] == "cost" and stages[-1] == "spectral"
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(
    "params, words",
    [
        ({"max_samples": 79}, r"80 samples would need.*max_samples=79"),
        ({"method": "dsc-net"}, "method='dsc-net'"),
        ({"method_params": {"n_clusters": 3}}, "method_params holds 'n_clusters'"),
        ({"method_params": {"depth": 3}}, "'depth' is not a parameter of lrr"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"n_clusters": 81}, "n_samples=80 should be >= n_clusters=81"),
    ],
)
def test_what_the_method_would_refuse_is_refused_before_the_network_is_trained(
    params, words, monkeypatch
):
    monkeypatch.setattr(autoencoder, "train_or_restore", lambda *_, **__: pytest.fail("no"))
    model = quick()
    given = dict(params)
    inside = {name: given.pop(name) for name in ("max_samples", "max_iter") if name in given}
    model.set_params(**({"method_params": inside} if inside else {}) | given)
    with pytest.raises(InputError, match=words):
        model.fit(X)


def test_vectors_are_refused_where_images_are_needed():
    with pytest.raises(InputError, match="needs images"):
        quick("ssc-cae").fit(X)


def test_checks_leave_torch_alone():
    torch.manual_seed(6)
    expected = torch.rand(1)
    torch.manual_seed(6)
    quick().fit(X)
    assert torch.equal(torch.rand(1), expected)


def test_methods_are_those_of_the_registry():
    assert set(on_features.METHODS) <= set(baselines.NAMES)
    assert OnFeatures().get_params()["method"] in on_features.METHODS


def test_empty_clusters_are_told_once(monkeypatch):
    monkeypatch.setattr("kscn_paper.rivals.affinity.spectral_labels", lambda *_: np.arange(80) % 2)
    with pytest.warns(ConvergenceWarning) as told:
        quick("ssc-omp-sae").fit(X)
    assert ["1 of the 3 clusters ended up empty" in str(one.message) for one in told] == [True]
