"""Using a fitted `KSCN`: every answer about a sample is its own, from any kind of input."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from kscn import KSCN
from kscn.errors import InputError
from kscn.estimators.defaults import OPEN

N = 120
METHODS = (
    "predict", "transform", "residuals", "predict_proba", "score_samples", "reconstruct",
)  # fmt: skip


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(64, 5), nn.Linear(5, 64)
        self.norm = nn.BatchNorm1d(5)

    def encode(self, images):
        return self.norm(self.down(images.flatten(1)))

    def decode(self, latent):
        return self.up(latent).unflatten(1, (1, 8, 8))


def digits():
    return load_digits().images[:N].astype(np.uint8)


def fitted(kind):
    X, params = digits(), {"autoencoder_params": {"channels": [6, 4], "kernels": [5, 3]}}
    if kind == "whitened":
        params |= {"latent": "whitened", "latent_dim": 6, "loss": "separation"}
        params["autoencoder_params"] |= {"batch_norm": True}
    elif kind == "grassmann":
        params |= {"update": "grassmann"}
    elif kind == "vectors":
        X = X.reshape(N, 64).astype(np.float64)
        params = {"autoencoder_params": {"hidden": [21], "latent_dim": 5}}
    elif kind == "own":
        torch.manual_seed(0)
        params = {"autoencoder": Own()}
    few = {"subspace_dim": 2, "pretrain_epochs": 2, "epochs": 1, "n_init": 1, "batch_size": 32}
    model = KSCN(3, random_state=0, **OPEN | few | params)
    return model.fit(X), X


MODELS = {}


@pytest.fixture(params=["paper", "grassmann", "whitened", "vectors", "own"])
def case(request):
    """A fitted model and what it was fitted to; nobody changes either."""
    if request.param not in MODELS:
        MODELS[request.param] = fitted(request.param)
    return MODELS[request.param]


@pytest.mark.parametrize("method", METHODS)
def test_answers_do_not_depend_on_the_company_of_a_sample(case, method):
    model, X = case
    call = getattr(model, method)
    whole = call(X)
    assert len(whole) == N
    order = np.random.default_rng(0).permutation(N)
    for rows in ([7], [N - 1], [3, 50, 4], order, np.repeat(order, 9)):
        np.testing.assert_array_equal(call(X[rows]), whole[rows])


def test_reconstructions_have_the_shape_and_the_units_of_the_samples(case):
    model, X = case
    restored = model.reconstruct(X)
    assert restored.shape == X.shape
    batch = torch.from_numpy(X.reshape(N, *model.model_.shape))
    with torch.no_grad():
        scaled = model.scaling_(batch)
        expected = model.autoencoder_.decode(model.autoencoder_.encode(scaled))
    if X.ndim == 3:
        expected = expected[:, 0] * X.max()
    else:
        mean = X.mean(axis=0)
        expected = expected.numpy() * np.sqrt(((X - mean) ** 2).mean()) + mean
    np.testing.assert_allclose(restored, expected, rtol=1e-4, atol=1e-3)


# Input --------------------------------------------------------------------------------------------


def test_the_scaling_of_the_fit_is_applied_to_whatever_comes_later():
    X = digits().astype(np.float64)
    model = KSCN(
        3, subspace_dim=2, autoencoder_params={"channels": [4], "kernels": [3]},
        latent="identity", pretrain_epochs=1, epochs=0, n_init=1, random_state=0,
    ).fit(X)  # fmt: skip
    assert float(model.scaling_.factor) == 1 / X.max()
    dark = X[:5] / 100  # by itself it would be scaled up a hundredfold
    whole = model.transform(np.concatenate([X, dark]))
    np.testing.assert_array_equal(model.transform(dark), whole[-5:])
    with torch.no_grad():
        scaled = torch.from_numpy(dark / X.max()).float()[:, None]
        expected = model.autoencoder_.encode(scaled)
    np.testing.assert_allclose(whole[-5:], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_samples_of_another_shape_are_refused(method):
    model, X = MODELS.setdefault("paper", fitted("paper"))
    call = getattr(model, method)
    for shape, words in (
        ((N, 4, 16), r"samples of shape \(4, 16\), but KSCN is expecting images of \(1, 8, 8\)"),
        ((N, 64), r"samples of shape \(64,\), but KSCN is expecting images"),
        ((N, 8, 8, 1), "colours last"),
        ((N // 2, 2, 8, 8), "X has 128 features, but KSCN is expecting 64"),
        ((-1,), "Expected 2D array, got 1D"),
    ):
        with pytest.raises(InputError, match=words):
            call(X.reshape(shape))


def test_a_module_of_your_own_is_not_given_images_of_another_shape_either():
    model, X = MODELS.setdefault("own", fitted("own"))
    with pytest.raises(InputError, match=r"expecting images of \(1, 8, 8\)"):
        model.predict(X.reshape(N, 16, 4))
