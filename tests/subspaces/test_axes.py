"""Wide samples along their leading directions: nothing of their subspaces is lost."""

import pytest
import torch

from kscn.subspaces import ScatterSums, Subspaces
from kscn.subspaces.axes import DIRECTIONS, Coordinates

D = DIRECTIONS + 60


def samples(n=300, rank=20, constant=0.0, columns=0):
    """Rows of a random space of `rank` dimensions in D columns, of which the last are constant."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, rank, generator=generator) @ torch.randn(rank, D, generator=generator)
    z[:, D - columns :] = constant
    return z


@pytest.mark.parametrize("width", [5, DIRECTIONS])
def test_narrow_samples_stay_as_they_are(width):
    z = samples()[:, :width]
    kept = Coordinates.leading(z, 10)
    assert kept.axes is None
    assert kept.z is z
    assert not kept.outside.any()


def test_no_fewer_axes_than_the_subspaces_have_dimensions():
    assert Coordinates.leading(samples(), D - 1).z.shape == (300, D - 1)
    assert Coordinates.leading(samples(), D).axes is None


@pytest.mark.parametrize("n", [30, 300])
@pytest.mark.parametrize("columns", [0, 7])
def test_lengths_and_angles_of_samples_are_kept(n, columns):
    z = samples(n, constant=3.0, columns=columns)
    found = Coordinates.leading(z, 10)
    assert found.z.shape == (n, DIRECTIONS + (columns > 0))
    gram = found.axes.mT @ found.axes
    torch.testing.assert_close(gram, torch.eye(len(gram)), rtol=0, atol=1e-5)
    scale = float(z.square().sum(dim=1).mean())
    torch.testing.assert_close(found.z @ found.z.mT / scale, z @ z.mT / scale, rtol=0, atol=1e-5)
    assert found.outside.max() < 1e-5 * scale


@pytest.mark.parametrize("affine", [False, True])
def test_residuals_lack_what_is_outside_and_nothing_else(affine):
    z = samples()
    z += 0.1 * torch.randn(z.shape, generator=torch.Generator().manual_seed(2))
    found = Coordinates.leading(z, 10)
    r = found.z.shape[1]
    generator = torch.Generator().manual_seed(1)
    bases = torch.linalg.qr(torch.randn(4, r, 3, generator=generator)).Q
    points = torch.randn(4, r, generator=generator) if affine else None
    inside = Subspaces.through(points, bases)
    residual = found.back(inside).residuals(z)
    assert found.back(inside).fault(1e-5) is None
    expected = inside.residuals(found.z) + found.outside[:, None]
    torch.testing.assert_close(residual, expected, rtol=1e-4, atol=0)


def test_constants_have_a_column_of_their_own():
    varying, constants = Coordinates.leading(samples(constant=50.0, columns=7), 10).varying()
    assert constants
    assert varying.z.shape[1] == varying.axes.shape[1] == DIRECTIONS
    assert varying.z.square().mean() < 50


@pytest.mark.parametrize("decay", [0.98, 0.985])
def test_what_is_outside_counts_for_the_dimension(decay):
    z = torch.randn(2000, D, generator=torch.Generator().manual_seed(0))
    z *= (decay ** torch.arange(D)) ** 0.5  # 90 % of the energy in log(0.1) / log(decay) directions
    members = torch.arange(len(z)) % 2
    members[:10] = -1
    found = []
    for kept in (Coordinates.leading(z, 10), Coordinates(z, z.new_zeros(len(z)))):
        sums = ScatterSums(2, kept.z.shape[1], affine=False)
        sums.add(kept.z, members)
        found.append(kept.dims(sums, members))
    assert Coordinates.leading(z, 10).outside.sum() > 0.01 * z.square().sum()
    assert (found[0] - found[1]).abs().max() <= 2


def test_samples_in_strong_noise_stay_as_they_are():
    z = torch.randn(2000, D, generator=torch.Generator().manual_seed(0))
    assert Coordinates.leading(z, 10).axes is None
