"""DCN: centres against a plain loop over samples, gradients against formulas, the loop by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from kscn.data import as_source
from kscn.errors import TrainingError
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.dcn import DCN, losses, running_means

X, Y = make_blobs(200, 8, centers=4, cluster_std=1.5, random_state=1)


def quick(k=4, **params):
    settings = {
        "autoencoder_params": {"hidden": (16,), "latent_dim": 3},
        "layer_epochs": 2,
        "pretrain_epochs": 10,
        "batch_size": 32,
        "n_init": 3,
        "epochs": 3,
        "cache": False,
        "random_state": 0,
    }
    return DCN(k, **settings | params)


def one_by_one(centres, counts, z, labels):
    """The rule as it is told: samples in turn."""
    centres, counts = centres.copy(), counts.copy()
    for sample, label in zip(z, labels, strict=True):
        counts[label] += 1
        centres[label] -= (centres[label] - sample) / counts[label]
    return centres, counts


@given(seed=st.integers(0, 10**6), n=st.integers(0, 40), k=st.integers(1, 5))
def test_a_batch_at_once_equals_its_samples_in_turn_in_any_order(seed, n, k):
    rng = np.random.default_rng(seed)
    centres, z = rng.standard_normal((k, 3)), rng.standard_normal((n, 3))
    counts, labels = rng.integers(1, 50, k).astype(float), rng.integers(0, k, n)
    found = running_means(*(torch.from_numpy(a) for a in (centres, counts, z, labels)))
    order = rng.permutation(n)
    for expected in (
        one_by_one(centres, counts, z, labels),
        one_by_one(centres, counts, z[order], labels[order]),
    ):
        np.testing.assert_allclose(found[0], expected[0], atol=1e-10)
        np.testing.assert_array_equal(found[1], expected[1])


def test_a_centre_without_samples_stays():
    centres = torch.tensor([[1.0], [5.0]])
    moved, counts = running_means(
        centres, torch.tensor([1.0, 3.0]), torch.tensor([[3.0]]), torch.tensor([0])
    )
    assert moved.tolist() == [[2.0], [5.0]]
    assert counts.tolist() == [2, 3]


def test_the_gradient_pulls_each_latent_to_its_centre():
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.standard_normal((10, 3)), requires_grad=True)
    x, restored = torch.from_numpy(rng.standard_normal((2, 10, 5)))
    restored = restored.clone().requires_grad_()
    centres = torch.from_numpy(rng.standard_normal((4, 3)))
    own = centres[torch.arange(10) % 4]
    error, distance = losses(restored, x, z, own)
    assert error.item() == pytest.approx(((restored - x) ** 2).sum(dim=1).mean().item())
    (error + 0.3 / 2 * distance).backward()
    torch.testing.assert_close(z.grad, 0.3 * (z.detach() - own) / 10)
    torch.testing.assert_close(restored.grad, 2 * (restored.detach() - x) / 10)


def test_an_epoch_of_one_batch_equals_a_step_written_by_hand():
    start = quick(epochs=0, batch_size=200).fit(X)
    moved = quick(epochs=1, batch_size=200, weight=0.5, learning_rate=1e-3).fit(X)
    network = start.autoencoder_
    x = start._batches(as_source(X)).take(np.arange(200))
    z = network.encode(x)
    centres = torch.from_numpy(start.cluster_centers_)
    own = centres[torch.from_numpy(start.labels_).long()]
    error = (network.decode(z) - x).square().sum(dim=1)
    distance = (z - own).square().sum(dim=1)
    (error + 0.25 * distance).mean().backward()
    record = moved.history_[-1]
    assert record["reconstruction"] == pytest.approx(error.mean().item(), rel=1e-4)
    assert record["distance"] == pytest.approx(distance.mean().item(), rel=1e-4)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    optimizer.step()
    for by_hand, found in zip(network.parameters(), moved.autoencoder_.parameters(), strict=True):
        # Adam divides by the gradient, so where that is next to nothing rounding decides.
        assert ((by_hand - found).abs() < 1e-4).double().mean() > 0.98
    after, _ = one_by_one(
        start.cluster_centers_.astype(float), np.full(4, 100.0), z.detach().numpy(), start.labels_
    )
    gap = np.abs(moved.cluster_centers_[:, None] - after).max(axis=2).min(axis=1)
    assert gap.max() < 1e-4  # sizes may have changed their numbers


def test_blobs_are_told_apart():
    model = quick(epochs=10, pretrain_epochs=40, learning_rate=1e-3).fit(X)
    assert clustering_accuracy(Y, model.labels_) > 0.9
    assert model.n_iter_ == len([r for r in model.history_ if r["stage"] == "fit"]) == 10


def test_weight_trades_reconstruction_for_nearness_to_centres():
    loose, tight = (
        quick(epochs=10, learning_rate=1e-3, weight=weight).fit(X).history_[-1]
        for weight in (0, 50)
    )
    assert tight["distance"] < loose["distance"]
    assert tight["reconstruction"] > loose["reconstruction"]


def test_labels_are_the_nearest_of_the_final_centres_without_another_k_means():
    model = quick(epochs=4, learning_rate=1e-2).fit(X)
    latents = np.asarray(model._latents(as_source(X))).astype(np.float64)
    apart = ((latents[:, None] - model.cluster_centers_) ** 2).sum(axis=2)
    np.testing.assert_array_equal(apart.argmin(axis=1), model.labels_)
    assert model.inertia_ == pytest.approx(apart.min(axis=1).sum())


def test_without_epochs_it_is_k_means_on_the_pretrained_latent():
    from kscn_paper.rivals.autoencoder import AutoencoderKMeans

    params = quick(epochs=0).get_params()
    for name in ("weight", "epochs", "learning_rate"):
        del params[name]
    np.testing.assert_array_equal(
        AutoencoderKMeans(**params).fit_predict(X), quick(epochs=0).fit_predict(X)
    )


def test_training_that_diverges_is_told():
    with pytest.raises(TrainingError, match="lower learning_rate"):
        quick(learning_rate=1e30).fit(X)
