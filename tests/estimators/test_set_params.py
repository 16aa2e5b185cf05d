"""What is set after a fit changes nothing of what was fitted: answers, and what is saved."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

from kscn import KSCN, KSCNPlus, KSubspaces, load_model
from kscn.data import make_union_of_subspaces

VECTORS = make_union_of_subspaces(90, 3, 12, 2, noise=0.1, random_state=0)[0]
IMAGES = load_digits().images[:90].astype(np.float32)
NETWORK = {"autoencoder_params": {"hidden": [12], "latent_dim": 5}}
CASES = {
    "KSubspaces, affine": (
        lambda: KSubspaces(3, subspace_dim=2, affine=True, n_init=1, random_state=0),
        VECTORS,
        {"n_clusters": 2, "affine": False, "subspace_dim": 5, "n_init": "x"},
    ),
    "KSCN": (
        lambda: KSCN(
            3, subspace_dim=2, loss="separation", temperature=0.5, pretrain_epochs=1, epochs=1,
            n_init=1, random_state=0, **NETWORK,
        ),
        VECTORS,
        {"n_clusters": 9, "autoencoder": "cae", "loss": "residual", "temperature": 3.0,
         "latent": "whitened"},
    ),
    "KSCNPlus, refined": (
        lambda: KSCNPlus(3, starts=1, refine=True, epochs=1, random_state=0),
        IMAGES,
        {"n_clusters": 9, "refine": False, "batch_size": 7},
    ),
}  # fmt: skip
METHODS = ("predict", "predict_proba", "residuals", "transform", "score_samples")


@pytest.mark.parametrize("name", CASES)
def test_nothing_fitted_depends_on_what_is_set_later(name, tmp_path):
    make, X, changes = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single epoch or start
        model = make().fit(X)
    answers = {m: getattr(model, m)(X) for m in METHODS if hasattr(model, m)}
    params = model.get_params()
    model.set_params(**changes)
    for method, expected in answers.items():
        np.testing.assert_array_equal(getattr(model, method)(X), expected)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    for method, expected in answers.items():
        np.testing.assert_array_equal(getattr(loaded, method)(X), expected)
    assert {name: loaded.get_params()[name] for name in changes} == {
        name: params[name] for name in changes
    }
