"""The scale of the samples changes no cluster, from 1e-30 to 1e30, of no estimator."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

from kscn import KSCN, KSCNPlus, KSubspaces
from kscn.data import make_union_of_subspaces
from kscn.metrics import clustering_accuracy

VECTORS = make_union_of_subspaces(150, 3, 12, 2, noise=0.02, random_state=0)[0]
IMAGES = load_digits().images[:90].astype(np.float32)
SMALL = {"pretrain_epochs": 1, "epochs": 1, "n_init": 1, "subspace_dim": 2}
NARROW = {"hidden": [20], "latent_dim": 6}
SHALLOW = {"channels": [6, 4], "kernels": [3, 3]}
MODELS = {
    "KSubspaces": (lambda: KSubspaces(3, n_init=1, random_state=0), VECTORS),
    "KSubspaces, affine": (lambda: KSubspaces(3, affine=True, n_init=1, random_state=0), VECTORS),
    "KSCN, vectors": (
        lambda: KSCN(3, random_state=0, autoencoder_params=NARROW, **SMALL),
        VECTORS,
    ),
    "KSCN, images": (
        lambda: KSCN(3, random_state=0, autoencoder_params=SHALLOW, **SMALL),
        IMAGES,
    ),
    "KSCNPlus, vectors": (lambda: KSCNPlus(3, starts=1, random_state=0), VECTORS),
    "KSCNPlus, images": (lambda: KSCNPlus(3, starts=1, random_state=0), IMAGES),
    "KSCNPlus, refined": (
        lambda: KSCNPlus(3, starts=1, refine=True, epochs=1, random_state=0),
        IMAGES,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_any_scale_gives_the_same_clusters(name):
    make, X = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single epoch or start
        labels = make().fit_predict(X)
        for exponent in (-100, 100):  # exact, so that not even rounding differs
            scaled = make().fit(X * np.float32(2.0**exponent))
            np.testing.assert_array_equal(scaled.labels_, labels)
        found = make().fit_predict(X.astype(np.float64) * 1e18)
        assert clustering_accuracy(labels, found) > 0.95
