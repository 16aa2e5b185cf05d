"""EDESC: shares, target and loss against their formulas in numpy; both stages of training."""

import functools

import numpy as np
import pytest
import torch
from scipy.special import rel_entr

from kscn.data import load, make_union_of_subspaces
from kscn.errors import InputError, TrainingError
from kscn.metrics import clustering_accuracy
from kscn_paper.rivals.base import sharpened
from kscn_paper.rivals.edesc import EDESC, Bases, share_loss


def quick(k=3, **params):
    settings = {"subspace_dim": 2, "hidden": (20,), "pretrain_epochs": 2, "epochs": 2, "n_init": 2}
    return EDESC(k, **{**settings, "random_state": 0, **params})


@functools.cache
def union(n=150):
    return make_union_of_subspaces(n, 3, 12, 2, noise=0.05, random_state=0)[:2]


@functools.cache
def fitted():
    return quick().fit(union()[0])


def random_problem(n=9, k=3, d=6, p=2):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d)), rng.standard_normal((k, d, p))


def naive_shares(z, bases, eta):
    """s_ij as the paper writes it, one at a time."""
    p = bases.shape[2]
    shares = np.array([[np.sum((row @ basis) ** 2) + eta * p for basis in bases] for row in z])
    return shares / shares.sum(axis=1, keepdims=True)


def test_shares_and_their_target_are_those_of_the_paper():
    z, bases = random_problem()
    shares = Bases(torch.from_numpy(bases)).shares(torch.from_numpy(z), 2.0).detach()
    expected = naive_shares(z, bases, 2.0)
    np.testing.assert_allclose(shares, expected, rtol=1e-12)
    weight = expected**2 / expected.sum(axis=0)
    np.testing.assert_allclose(
        sharpened(shares), weight / weight.sum(axis=1, keepdims=True), rtol=1e-12
    )


def naive_loss(z, bases, target, beta, eta, orthogonality):
    k, _, p = bases.shape
    flat = np.concatenate(list(bases), axis=1)  # (d, k p)
    inner = flat.T @ flat
    between = np.ones((k * p, k * p))
    for j in range(k):
        between[j * p : j * p + p, j * p : j * p + p] = 0
    lengths = np.linalg.norm(np.diag(np.diag(inner)) - np.eye(k * p))
    overlap = np.linalg.norm(inner * between)
    divergence = rel_entr(target, naive_shares(z, bases, eta)).mean()
    return beta * divergence + orthogonality * (lengths + overlap)


def test_the_loss_and_its_gradient_are_those_of_the_formula():
    z, bases = random_problem()
    target = sharpened(torch.from_numpy(naive_shares(*random_problem(), 1.0)))
    weights = {"beta": 0.7, "eta": 1.5, "orthogonality": 0.03}
    module = Bases(torch.from_numpy(bases))
    latents = torch.from_numpy(z).requires_grad_()
    loss = share_loss(module, target, **weights)(latents, torch.arange(len(z)))
    assert loss.item() == pytest.approx(naive_loss(z, bases, target.numpy(), **weights), rel=1e-12)
    loss.backward()
    step = 1e-6
    for array, gradient in ((z, latents.grad), (bases, module.bases.grad)):
        slopes = np.empty_like(array)
        for place in np.ndindex(array.shape):
            ends = []
            for shift in (step, -step):
                array[place] += shift
                ends.append(naive_loss(z, bases, target.numpy(), **weights))
                array[place] -= shift
            slopes[place] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(gradient, slopes, atol=1e-8)


def test_the_loss_of_a_batch_takes_the_targets_of_its_samples():
    z, bases = random_problem()
    target = torch.from_numpy(naive_shares(*random_problem(), 1.0))
    loss = share_loss(Bases(torch.from_numpy(bases)), target, beta=1, eta=2, orthogonality=0)
    rows = torch.tensor([7, 2, 4])
    expected = naive_loss(z[rows], bases, target[rows].numpy(), 1, 2, 0)
    assert loss(torch.from_numpy(z)[rows], rows).item() == pytest.approx(expected)


def test_orthonormal_bases_of_all_directions_cost_nothing():
    bases = Bases(torch.eye(6).view(6, 3, 2).permute(1, 0, 2))
    assert bases.norm_error().item() == 0 and bases.overlap().item() == 0
    longer = Bases(2 * bases.bases.detach())
    assert longer.norm_error().item() == pytest.approx(54**0.5) and longer.overlap().item() == 0
    same = Bases(bases.bases.detach()[[0, 0]])
    assert same.norm_error().item() == 0 and same.overlap().item() == 2


def test_bases_start_at_the_leading_directions_of_clusters():
    model = quick(epochs=0).fit(union()[0])
    gram = model.bases_.swapaxes(1, 2) @ model.bases_
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(2), (3, 2, 2)), atol=1e-5)
    assert model.bases_.shape == (3, 6, 2)
    assert model.n_iter_ == 0 and [r["stage"] for r in model.history_] == ["pretrain"] * 2


def test_training_lowers_the_loss_and_moves_the_bases():
    model = quick(epochs=8, tol=0, pretrain_epochs=5, joint_learning_rate=3e-3, batch_size=32)
    start = quick(epochs=0, pretrain_epochs=5, batch_size=32)
    X, _ = union()
    model.fit(X), start.fit(X)
    pretraining = [r["reconstruction"] for r in model.history_ if r["stage"] == "pretrain"]
    fits = [r for r in model.history_ if r["stage"] == "fit"]
    objective = [r["reconstruction"] / 12 + r["subspace"] for r in fits]
    assert pretraining[-1] < pretraining[0]
    assert objective[-1] < objective[0]
    assert not np.allclose(np.sort(model.bases_, axis=None), np.sort(start.bases_, axis=None))


def test_the_orthogonality_terms_keep_bases_apart():
    X, _ = union()
    free, bound = (
        quick(epochs=6, tol=0, batch_size=16, joint_learning_rate=1e-3, orthogonality=w)
        .fit(X)
        .history_[-1]
        for w in (0.0, 1.0)
    )
    assert bound["overlap"] < free["overlap"]


def test_digits_are_told_apart_far_better_than_by_chance():
    digits = load("digits")
    X, y = np.asarray(digits.samples)[:700], digits.labels[:700]
    model = EDESC(10, hidden=(64, 64), pretrain_epochs=25, epochs=5, batch_size=64, random_state=0)
    labels = model.fit_predict(X)
    assert clustering_accuracy(y, labels) > 0.55
    assert (np.diff(np.bincount(labels)) <= 0).all()  # numbered by falling size


def test_k_means_may_see_a_part_of_the_latents():
    X, _ = union()
    model = quick(pool=50).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_training_stops_when_labels_stay():
    model = quick(epochs=50, tol=1.0).fit(union()[0])
    assert model.n_iter_ == 1


@pytest.mark.parametrize(
    "params, words",
    [
        ({"latent_dim": 1}, "latent_dim=1 must be None or an integer of at least 2"),
        ({"hidden": 7}, "hidden"),
        ({"hidden": (5, 0)}, "layer widths"),
    ],
)
def test_bad_arguments_are_refused_by_name(params, words):
    with pytest.raises(InputError, match=words):
        quick().set_params(**params).fit(union()[0])


def test_divergence_is_told():
    with pytest.raises(TrainingError, match="lower learning_rate"):
        quick(learning_rate=1e18, pretrain_epochs=4).fit(union()[0])
    with pytest.raises(TrainingError, match="lower learning_rate"):
        quick(joint_learning_rate=1e18, epochs=4).fit(union()[0])
