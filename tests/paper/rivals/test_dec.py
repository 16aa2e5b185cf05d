"""DEC and IDEC: formulas against plain numpy, gradients against the paper's, the loop by hand."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from kscn.data import as_source
from kscn.errors import TrainingError
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.base import sharpened
from kscn_paper.rivals.dec import (
    DEC,
    IDEC,
    divergence,
    log_assignments,
    soft_assignments,
)

rng = np.random.default_rng(0)
Z = rng.standard_normal((20, 3))
CENTRES = rng.standard_normal((4, 3))
X, Y = make_blobs(200, 8, centers=4, cluster_std=1.5, random_state=1)
both = pytest.mark.parametrize("method", [DEC, IDEC])


def quick(method, k=4, **params):
    settings = {
        "autoencoder_params": {"hidden": (16,), "latent_dim": 3},
        "layer_epochs": 2,
        "pretrain_epochs": 10,
        "batch_size": 32,
        "n_init": 3,
        "update_every": 10,
        "max_iter": 3,
        "cache": False,
        "random_state": 0,
    }
    return method(k, **settings | params)


def shares(model):
    """The soft assignments of X."""
    centres = torch.from_numpy(model.cluster_centers_)
    return soft_assignments(model._latents(as_source(X)), centres).numpy()


def naive_q(z, centres):
    q = np.empty((len(z), len(centres)))
    for i, point in enumerate(z):
        for j, centre in enumerate(centres):
            q[i, j] = 1 / (1 + sum((point - centre) ** 2))
        q[i] /= q[i].sum()
    return q


def naive_p(q):
    p = np.empty_like(q)
    for i in range(len(q)):
        for j in range(q.shape[1]):
            p[i, j] = q[i, j] ** 2 / sum(q[:, j])
        p[i] /= p[i].sum()
    return p


def test_soft_assignments_are_those_of_the_formula():
    found = log_assignments(torch.from_numpy(Z), torch.from_numpy(CENTRES)).exp()
    np.testing.assert_allclose(found, naive_q(Z, CENTRES), rtol=1e-10)
    whole = soft_assignments(as_source(Z), torch.from_numpy(CENTRES))
    np.testing.assert_allclose(whole, naive_q(Z, CENTRES), rtol=1e-10)


def test_the_target_is_that_of_the_formula():
    q = naive_q(Z, CENTRES)
    np.testing.assert_allclose(sharpened(torch.from_numpy(q)), naive_p(q), rtol=1e-10)


def test_far_latents_have_finite_logarithms_and_gradients():
    z = torch.full((1, 3), 1e12, requires_grad=True)
    log_q = log_assignments(z, torch.from_numpy(CENTRES).float())
    divergence(torch.tensor([[1.0, 0, 0, 0]]), log_q).backward()
    assert log_q.isfinite().all() and z.grad.isfinite().all()


def test_gradients_are_those_of_the_paper():
    q = naive_q(Z, CENTRES)
    p = naive_p(q)
    z = torch.tensor(Z, requires_grad=True)
    centres = torch.tensor(CENTRES, requires_grad=True)
    loss = divergence(torch.from_numpy(p), log_assignments(z, centres))
    loss.backward()
    assert loss.item() == pytest.approx((p * np.log(p / q)).sum() / len(Z))
    for_z, for_centres = np.zeros_like(Z), np.zeros_like(CENTRES)
    for i in range(len(Z)):
        for j in range(len(CENTRES)):
            apart = Z[i] - CENTRES[j]
            pull = 2 * (p[i, j] - q[i, j]) / (1 + apart @ apart) * apart / len(Z)
            for_z[i] += pull
            for_centres[j] -= pull
    np.testing.assert_allclose(z.grad, for_z, atol=1e-12)
    np.testing.assert_allclose(centres.grad, for_centres, atol=1e-12)


@both
def test_a_refresh_of_one_step_equals_a_step_written_by_hand(method):
    start = quick(method, max_iter=0, batch_size=200).fit(X)
    moved = quick(method, max_iter=1, update_every=1, batch_size=200).fit(X)
    network = start.autoencoder_
    batches = start._batches(as_source(X))
    x = batches.take(np.arange(200))
    centres = torch.tensor(start.cluster_centers_, requires_grad=True)
    z = network.encode(x)
    q = 1 / (1 + torch.cdist(z, centres) ** 2)
    q = q / q.sum(dim=1, keepdim=True)
    p = torch.from_numpy(naive_p(q.detach().numpy().astype(np.float64)))
    kl = (p * (p / q).log()).sum() / 200
    if method is DEC:
        kl.backward()
        for before, after in zip(
            network.encoder.parameters(), moved.autoencoder_.encoder.parameters(), strict=True
        ):
            torch.testing.assert_close(after, before - 0.01 * before.grad, atol=1e-5, rtol=1e-4)
        for before, after in zip(
            network.decoder.parameters(), moved.autoencoder_.decoder.parameters(), strict=True
        ):
            assert torch.equal(before, after)  # DEC leaves the decoder behind
        expected = centres - 0.01 * centres.grad
    else:
        loss = (network.decode(z) - x).square().mean() + 0.1 * kl
        loss.backward()
        # Adam's first step has the length of the learning rate, whatever the gradient.
        expected = centres - 1e-3 * centres.grad.sign()
        assert moved.history_[-1]["objective"] == pytest.approx(loss.item(), rel=1e-4)
    found = moved.cluster_centers_
    nearest = np.abs(found[:, None] - expected.detach().numpy()).max(axis=2).min(axis=1)
    assert nearest.max() < 2e-4  # sizes may have changed their numbers


@both
def test_blobs_are_told_apart_and_the_most_likely_cluster_is_the_label(method):
    model = quick(method, update_every=20, max_iter=5, pretrain_epochs=40).fit(X)
    assert clustering_accuracy(Y, model.labels_) > 0.9
    np.testing.assert_array_equal(shares(model).argmax(axis=1), model.labels_)


@both
def test_assignments_become_surer(method):
    start, end = (shares(quick(method, max_iter=m, tol=0).fit(X)) for m in (0, 8))
    assert end.max(axis=1).mean() > start.max(axis=1).mean()


def test_training_stops_when_few_labels_change():
    model = quick(DEC, max_iter=50, tol=0.999).fit(X)
    fits = [record for record in model.history_ if record["stage"] == "fit"]
    assert len(fits) == model.n_iter_ == 1
    # Strictly less than the tolerance: with none, all refreshes are made.
    assert quick(DEC, max_iter=4, tol=0).fit(X).n_iter_ == 4


def test_training_that_diverges_is_told():
    with pytest.raises(TrainingError, match="lower learning_rate"):
        quick(IDEC, learning_rate=1e30).fit(X)
