"""DSC-Net: closed-form codes against leave-one-out ridge regression; both stages of training."""

import functools

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from kscn.data import make_union_of_subspaces
from kscn.errors import InputError, TrainingError
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals import dsc_net
from kscn_paper.rivals.dsc_net import DSCNet
from kscn_paper.rivals.self_expression import code_affinity, dsc_start, ridge_codes


def union(n=120, k=3, d=20, p=2, noise=0.01):
    return make_union_of_subspaces(n, k, d, p, noise=noise, random_state=0)[:2]


@functools.cache
def blobs():
    """Images (80, 16, 16) in two clusters: each mixes two blobs of light of its own."""
    rng = np.random.default_rng(0)
    row, column = np.mgrid[:16, :16]
    centres = rng.uniform(2, 14, (2, 2, 2, 1, 1))
    light = np.exp(-((row - centres[:, :, 0]) ** 2 + (column - centres[:, :, 1]) ** 2) / 6)
    y = np.arange(80) % 2
    images = np.einsum("np,nphw->nhw", rng.random((80, 2)) + 0.1, light[y])
    return images.astype(np.float32), y


def quick(k=2, **params):
    settings = {"subspace_dim": 2, "pretrain_epochs": 3, "epochs": 3, "random_state": 0}
    return DSCNet(k, **settings | params)


@pytest.mark.parametrize("shape", [(30, 6), (8, 20)])
def test_codes_are_those_of_ridge_regression_on_the_other_samples(shape):
    Z = np.random.default_rng(0).standard_normal(shape)
    codes = ridge_codes(torch.from_numpy(Z), 0.7).numpy()
    for i, code in enumerate(codes):
        others = np.arange(len(Z)) != i
        expected = Ridge(alpha=0.7, fit_intercept=False).fit(Z[others].T, Z[i]).coef_
        np.testing.assert_allclose(code[others], expected, atol=1e-9)
        assert code[i] == 0


def test_independent_subspaces_are_recovered_from_latents():
    X, y = union()
    labels = dsc_start(torch.from_numpy(X), 3, 0)
    assert clustering_accuracy(y, labels) == 1
    again = dsc_start(torch.from_numpy(X), 3, 0)
    np.testing.assert_array_equal(labels, again)


def test_latents_of_any_scale_give_the_same_labels():
    X, _ = union(noise=0.3)
    labels = dsc_start(torch.from_numpy(X), 3, 0)
    np.testing.assert_array_equal(dsc_start(torch.from_numpy(100 * X), 3, 0), labels)


def test_latents_that_cannot_be_clustered_are_refused():
    with pytest.raises(InputError, match="NaN"):
        dsc_start(torch.full((5, 2), torch.nan), 2, 0)


def test_the_affinity_of_block_codes_has_the_same_blocks():
    y = np.arange(30) % 3
    rng = np.random.default_rng(0)
    codes = np.where(y[:, None] == y, rng.random((30, 30)), 0)
    affinity = code_affinity(torch.from_numpy(codes), rank=3, keep=1.0, power=4, seed=0)
    np.testing.assert_allclose(affinity, y[:, None] == y, atol=1e-9)


def test_images_are_told_apart_and_losses_fall():
    images, y = blobs()
    model = quick(
        pretrain_epochs=20,
        epochs=10,
        batch_size=20,
        learning_rate=3e-3,
        autoencoder_params={"channels": (8, 6), "kernels": (3, 3)},
    ).fit(images)
    assert clustering_accuracy(y, model.labels_) == 1
    pretraining = [r["reconstruction"] for r in model.history_ if r["stage"] == "pretrain"]
    training = [r["objective"] for r in model.history_ if r["stage"] == "train"]
    assert pretraining[-1] < pretraining[0] / 2
    assert training[-1] < training[0]
    assert model.n_iter_ == len(training) == 10


def test_vectors_take_the_dense_autoencoder():
    X, y = union()
    model = quick(3, pretrain_epochs=60, batch_size=32).fit(X)
    # Better than chance is all there is to ask: a dense network bends subspaces that were straight.
    assert clustering_accuracy(y, model.labels_) > 0.5
    objective = [r["objective"] for r in model.history_ if r["stage"] == "train"]
    assert objective[-1] < objective[0]
    assert model.autoencoder_.latent_dim == 50


def test_no_sample_expresses_itself(monkeypatch):
    images, _ = blobs()
    seen = []

    def spy(codes, *settings):
        seen.append(codes.clone())
        return code_affinity(codes, *settings)

    monkeypatch.setattr(dsc_net, "code_affinity", spy)
    start = quick(epochs=0).fit(images)
    end = quick(epochs=3).fit(images)
    assert (start.n_iter_, end.n_iter_) == (0, 3)
    before, after = seen
    assert not torch.equal(before, after)
    assert not before.diagonal().any() and not after.diagonal().any()


def test_training_that_diverges_is_told():
    images, _ = blobs()
    with pytest.raises(TrainingError, match=r"epoch \d of training; lower"):
        quick(epochs=9, learning_rate=1e-3, code_learning_rate=1e25).fit(images)
