"""`KSCN` behaves as scikit-learn asks of its estimators."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import short
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kscn import KSCN
from kscn.data import make_union_of_subspaces
from kscn.nn import DenseAutoencoder

pytestmark = pytest.mark.filterwarnings("ignore:.*clusters ended up empty")


DENSE = {"autoencoder_params": {"hidden": [12], "latent_dim": 4}}
quick = partial(short.kscn, subspace_dim=1, pretrain_epochs=2, **DENSE)


def union(n=120, d=8):
    return make_union_of_subspaces(n, 3, d, 2, noise=0.02, random_state=0)[0]


# From k-means: lines through the origin of whitened latents do not fit the blobs of
# check_clustering best one by one, so that starts with a lower objective miss them.
OTHERWISE = quick(update="grassmann", latent="whitened", loss="separation", init="k-means")


@parametrize_with_checks([quick(), OTHERWISE])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_params_survive_get_set_and_clone():
    module = DenseAutoencoder(8, [6], 3)
    params = {"n_clusters": 4, "subspace_dim": [1, 2, 1, 1], "autoencoder": module, "weight": 0.5}
    model = quick(**params)
    assert params.items() <= model.get_params().items()
    copied = clone(model.set_params(settings={"tol": 0.5}))
    assert copied.settings == {"tol": 0.5}
    assert copied.autoencoder is not module
    for one, other in zip(copied.autoencoder.parameters(), module.parameters(), strict=True):
        assert torch.equal(one, other)
    assert "weight=0.5" in repr(copied)


def test_a_clone_of_a_fitted_model_is_not_fitted():
    X = union()
    with pytest.raises(NotFittedError, match="not fitted"):
        clone(quick().fit(X)).predict(X)


@pytest.mark.parametrize(
    "method", ["predict", "transform", "residuals", "predict_proba", "score", "reconstruct"]
)
def test_an_unfitted_model_says_so(method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(KSCN(), method)(np.ones((3, 4)))


def test_fitting_leaves_the_parameters_alone():
    X = union()
    start, params = np.arange(120) % 3, {"hidden": (6,), "latent_dim": 3}
    model = quick(init=start, autoencoder_params=params, random_state=None)
    before = copy.deepcopy(params)
    model.fit(X)
    assert model.init is start
    assert model.settings["autoencoder_params"] is params
    assert params == before
    assert model.random_state is None
    assert model.autoencoder == "auto"


def test_pipelines_and_searches():
    X = union()
    model = make_pipeline(StandardScaler(), quick())
    labels = model.fit_predict(X)
    np.testing.assert_array_equal(model.predict(X), labels)
    assert model.transform(X).shape == (120, 4)
    assert model.score(X) < 0
    search = GridSearchCV(quick(), {"subspace_dim": [1, 2]}, cv=2).fit(X)
    assert search.best_params_["subspace_dim"] in (1, 2)


def test_output_features_have_names():
    model = quick().fit(union())
    frame = model.set_output(transform="pandas").transform(union())
    assert list(frame.columns) == ["kscn0", "kscn1", "kscn2", "kscn3"]


def test_copies_of_a_fitted_model_predict_the_same():
    X = union()
    model = quick().fit(X)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(twin.transform(X), model.transform(X))
        np.testing.assert_array_equal(twin.predict(X), model.labels_)
