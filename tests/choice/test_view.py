"""Two views of a sample that settle its cluster together."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from kscn.choice.grow import fold_of
from kscn.choice.view import FeatureView, calibrated_temperature, combined
from kscn.data import as_source

K, N = 4, 600


def view(y, noise, seed):
    """Scores of the true clusters, in noise."""
    generator = torch.Generator().manual_seed(seed)
    return torch.eye(K)[y] + noise * torch.randn(len(y), K, generator=generator)


def truth():
    return torch.arange(N) % K


def right(labels):
    return float((labels == truth()).float().mean())


@pytest.mark.parametrize("noise", [(0.5, 0.5), (0.3, 0.4), (0.6, 0.5)])
def test_two_views_are_right_more_often_than_either(noise):
    one, other = (view(truth(), share, seed) for seed, share in enumerate(noise))
    settled = combined(one, other)
    assert right(settled.labels) > max(right(one.argmax(1)), right(other.argmax(1)))


@given(st.floats(0.2, 3.0), st.floats(1e-6, 1e6), st.integers(0, 100))
def test_the_temperature_is_that_of_greatest_likelihood(noise, unit, seed):
    scores = view(truth(), noise, seed)
    found = calibrated_temperature(unit * scores, truth()) / unit

    def loss(log):
        logits = scores.double() / float(np.exp(log))
        return float(torch.nn.functional.cross_entropy(logits, truth()))

    best = minimize_scalar(loss, bounds=(np.log(1e-3), np.log(1e3)), method="bounded").fun
    assert loss(np.log(found)) < best + 1e-4


def test_views_that_agree_everywhere_or_have_one_cluster_are_no_trouble():
    scores = view(truth(), 0.0, 0)
    settled = combined(scores, scores)
    assert right(settled.labels) == 1 and bool(torch.isfinite(settled.doubt).all())
    alone = combined(torch.zeros(5, 1), torch.zeros(5, 1))
    assert alone.labels.tolist() == [0] * 5 and alone.doubt.tolist() == [1.0] * 5


def lines(noise=0.05):
    """Samples near one line per cluster."""
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.normal(size=(12, K)))[0].T
    y = truth().numpy()
    z = bases[y] * rng.normal(size=(N, 1)) + noise * rng.normal(size=(N, 12))
    return z.astype(np.float32)


def features_of(z):
    return FeatureView(as_source(z), torch.from_numpy(z), torch.arange(N), 1, seed=0)


def test_subspaces_are_fitted_to_the_clusters_proposed():
    z = lines()
    residual = features_of(z).residuals(truth(), K)
    assert residual.shape == (N, K)
    assert right(residual.argmin(1)) > 0.9
    swapped = features_of(z).residuals((truth() + 1) % K, K)
    torch.testing.assert_close(swapped.roll(-1, 1), residual)


def test_no_sample_has_a_part_in_its_own_judgement():
    z = lines()
    z[0] = 100 * np.eye(12)[5]  # would take a subspace for itself
    residual = features_of(z).residuals(truth(), K)
    assert float(residual[0].min()) > 0.5 * 100**2
    fold = fold_of(torch.arange(N), 0)
    other = 1 + int((fold[1:] == fold[0]).nonzero()[0])  # in its fold: judged without it
    assert int(residual[other].argmin()) == int(truth()[other])


def test_mistakes_of_a_network_are_corrected_by_the_features():
    z = lines()
    network = 1 - view(truth(), 0.6, 3)
    settled = features_of(z).combined(network)
    assert right(settled.labels) > right(network.argmin(1)) + 0.05
