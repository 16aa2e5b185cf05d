"""From the autoencoder's code to the latent that is clustered."""

import pytest
import torch

from kscn.nn import IdentityLatent, WhitenedLatent


def codes(n=500, d=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(d, d, generator=generator, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) @ mixing + 4


def whitening(z, n_components):
    mean = z.mean(dim=0)
    covariance = (z - mean).T @ (z - mean) / len(z)
    return WhitenedLatent.from_moments(mean, covariance, n_components)


def test_the_identity_is_none():
    z = codes()
    assert IdentityLatent()(z) is z
    assert not list(IdentityLatent().parameters())


def test_whitened_coordinates_are_uncorrelated_and_of_unit_variance():
    z = codes()
    white = whitening(z, 6).linear(z.float()).double()
    torch.testing.assert_close(white.mean(dim=0), torch.zeros(6).double(), atol=1e-4, rtol=0)
    identity = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(white.T @ white / len(z), identity, atol=1e-3, rtol=0)


def test_fewer_directions_are_the_leading_ones_and_latents_have_unit_norm():
    z = codes()
    latent = whitening(z, 2)
    centred = z - z.mean(dim=0)
    leading = torch.linalg.svd(centred, full_matrices=False).Vh[:2]
    rows = torch.nn.functional.normalize(latent.linear.weight.detach().double(), dim=1)
    torch.testing.assert_close((rows @ leading.T).abs(), torch.eye(2).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(latent(z.float()).norm(dim=1), torch.ones(len(z)))


@pytest.mark.parametrize("wanted", [2, 3, 9])
def test_only_directions_that_carry_variance_are_kept(wanted):
    z = codes(d=6)
    z[:, 3:] = z[:, :3] @ codes(3, 3, seed=1)  # rank 3
    kept = whitening(z, wanted)(z.float()).shape[1]
    assert kept == min(wanted, 3)


def test_the_map_can_be_trained():
    z = codes().float()
    latent = whitening(z.double(), 3)
    latent(z).square()[:, 0].sum().backward()
    assert latent.linear.weight.grad.abs().sum() > 0
