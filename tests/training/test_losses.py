"""The losses that subspaces set, against their definitions."""

import math

import pytest
import torch

from kscn.subspaces import Subspaces
from kscn.training.losses import LossOptions, energies, residual_loss, separation_loss

PAPER = LossOptions()
NONE = torch.zeros(0)


def randn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def subspaces(k=3, d=7, p=2, seed=0):
    return Subspaces(torch.linalg.qr(randn(k, d, p, seed=seed)).Q)


def test_energies_are_squared_norms_of_projections():
    found, z = subspaces(), randn(20, 7, seed=1)
    expected = torch.stack([(z @ basis).square().sum(dim=1) for basis in found.bases], dim=1)
    torch.testing.assert_close(energies(z, found), expected)


def test_the_residual_loss_is_the_mean_squared_distance_to_the_nearest():
    found, z = subspaces(), randn(20, 7, seed=1)
    _, distance = found.assign(z)
    loss = residual_loss(z, found, NONE, 20, PAPER)
    torch.testing.assert_close(loss, distance.mean())


def test_the_gradient_of_the_residual_loss_points_from_the_own_subspace():
    found, z = subspaces(), randn(20, 7, seed=1).requires_grad_()
    labels, _ = found.assign(z.detach())
    (gradient,) = torch.autograd.grad(residual_loss(z, found, NONE, 20, PAPER), z)
    own = found.bases[labels]
    away = z.detach() - torch.einsum("ndp,nep,ne->nd", own, own, z.detach())
    torch.testing.assert_close(gradient, 2 * away / 20)


def test_the_gradient_in_the_bases_is_the_one_that_grassmann_steps_follow():
    z = randn(20, 7, seed=1)
    bases = subspaces().bases.clone().requires_grad_()
    labels, _ = Subspaces(bases.detach()).assign(z)
    loss = residual_loss(z, Subspaces(bases), NONE, 1, PAPER)
    (gradient,) = torch.autograd.grad(loss, bases)
    members = [z[labels == i] for i in range(3)]
    scatter = torch.stack([rows.mT @ rows for rows in members])
    torch.testing.assert_close(gradient, -2 * scatter @ bases.detach())


def unit(n=20, d=7):
    return torch.nn.functional.normalize(randn(n, d, seed=1), dim=1)


def test_the_separation_loss_is_the_cross_entropy_of_energies():
    found, z = subspaces(), unit()
    labels = torch.randperm(20, generator=torch.Generator().manual_seed(0)) % 3
    share = (energies(z, found) / 0.1).softmax(dim=1)
    expected = -share[torch.arange(20), labels].log().mean()
    torch.testing.assert_close(separation_loss(z, found, labels, 20, PAPER), expected)


def test_samples_without_a_label_teach_nothing():
    found, z = subspaces(), unit().requires_grad_()
    labels = torch.arange(20) % 3
    labels[::4] = -1
    loss = separation_loss(z, found, labels, 20, PAPER)
    kept = (labels >= 0).nonzero().flatten()
    alone = separation_loss(z[kept], found, labels[kept], len(kept), PAPER)
    torch.testing.assert_close(loss, alone)
    (gradient,) = torch.autograd.grad(loss, z)
    assert (gradient[::4] == 0).all()
    assert (gradient[kept].abs().sum(dim=1) > 0).all()


def test_balance_prefers_equal_clusters():
    bases = torch.eye(4, dtype=torch.float64).reshape(4, 4, 1)
    found = Subspaces(bases)
    unlabelled = torch.full((8,), -1)

    def loss(z):
        return separation_loss(z, found, unlabelled, 8, LossOptions(0.01, 2.0))

    spread = torch.eye(4, dtype=torch.float64).repeat(2, 1)
    heaped = torch.eye(4, dtype=torch.float64)[:1].repeat(8, 1)
    # Minus the entropy of the mean prediction: log 4 for equal shares, 0 for one cluster.
    assert float(loss(spread)) == pytest.approx(-2 * math.log(4))
    assert float(loss(heaped)) == pytest.approx(0, abs=1e-6)


def test_balance_prefers_the_shares_that_are_known():
    found = Subspaces(torch.eye(4, dtype=torch.float64).reshape(4, 4, 1))
    shares = torch.tensor([5, 1, 1, 1], dtype=torch.float64) / 8

    def loss(z):
        return separation_loss(z, found, torch.full((8,), -1), 8, LossOptions(0.01, 2.0, shares))

    uneven = torch.eye(4, dtype=torch.float64)[[0, 0, 0, 0, 0, 1, 2, 3]]
    spread = torch.eye(4, dtype=torch.float64).repeat(2, 1)
    # Divergence of the mean prediction from the shares.
    assert float(loss(uneven)) == pytest.approx(0, abs=1e-6)
    expected = 2 * float((0.25 * (0.25 / shares).log()).sum())
    assert float(loss(spread)) == pytest.approx(expected)
