"""Clusters as Gaussians: against scikit-learn and SciPy, and what they tell apart."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf

from kscn.subspaces.density import clearly_better, held_out_densities, shrunk_covariance


def normal(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("n", "d"), [(50, 5), (8, 12), (2, 3), (400, 1)])
def test_covariances_are_shrunk_as_by_scikit_learn(n, d):
    z = normal(n, d) * torch.arange(1, d + 1)
    np.testing.assert_allclose(shrunk_covariance(z), ledoit_wolf(z.numpy())[0], rtol=1e-10)


def test_equal_samples_have_no_covariance():
    assert not shrunk_covariance(torch.ones(5, 3).double()).any()


def test_densities_are_those_of_a_mixture_fitted_to_the_other_half():
    z = torch.cat([normal(60, 2), normal(40, 2, seed=1) + 4])[torch.randperm(100)]
    labels = (z.sum(dim=1) > 4).long()
    found = held_out_densities(z, labels)
    for half in (0, 1):
        own, others = torch.arange(100) % 2 == half, torch.arange(100) % 2 != half
        parts = []
        for i in (0, 1):
            members = z[others & (labels == i)].numpy()
            gaussian = multivariate_normal(members.mean(axis=0), ledoit_wolf(members)[0])
            parts.append(np.log(len(members) / 50) + gaussian.logpdf(z[own].numpy()))
        np.testing.assert_allclose(found[own], logsumexp(parts, axis=0), rtol=1e-4)


def test_a_group_and_its_mirror_image_are_told_apart():
    z = normal(600, 3)
    sign = torch.arange(600).div(2, rounding_mode="floor") % 2
    z[:, 0] += 8 * sign - 4
    right = sign
    mirrored = (z[:, 1] > 0).long()
    densities = [held_out_densities(z, labels) for labels in (mirrored, right)]
    assert densities[1].mean() > densities[0].mean() + 0.5
    assert clearly_better(densities) == 1
    assert clearly_better(densities[::-1]) == 0


def test_the_first_stays_unless_another_is_clearly_better():
    first = normal(100, 1)[:, 0]
    chance = first + normal(100, 1, seed=1)[:, 0] / 10
    chance += first.mean() - chance.mean() + 1e-3  # higher, but by a tenth of a standard error
    sure = first + 0.1
    assert clearly_better([first, chance]) == 0
    assert clearly_better([first, chance, sure]) == 2
    assert clearly_better([first]) == 0


@pytest.mark.parametrize("labels", [[0, 0, 0, 0, 0, 3], [0] * 6, [0, 1, 2, 3, 4, 5]])
def test_clusters_without_members_to_speak_of_are_survived(labels):
    assert held_out_densities(normal(6, 4), torch.tensor(labels)).isfinite().all()
    assert held_out_densities(torch.ones(6, 4), torch.tensor(labels)).isfinite().all()
