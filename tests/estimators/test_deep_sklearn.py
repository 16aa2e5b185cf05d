"""`KSCN` behaves as scikit-learn asks of its estimators."""

import copy
from functools import partial

import numpy as np
import pytest
import short
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

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
    copied = clone(model.set_params(tol=0.5))
    assert copied.tol == 0.5
    assert copied.autoencoder is not module
    for one, other in zip(copied.autoencoder.parameters(), module.parameters(), strict=True):
        assert torch.equal(one, other)
    assert "weight=0.5" in repr(copied)


def test_fitting_leaves_the_parameters_alone():
    X = union()
    start, params = np.arange(120) % 3, {"hidden": (6,), "latent_dim": 3}
    model = quick(init=start, autoencoder_params=params, random_state=None)
    before = copy.deepcopy(params)
    model.fit(X)
    assert model.init is start
    assert model.autoencoder_params is params
    assert params == before
    assert model.random_state is None
    assert model.autoencoder == "auto"
