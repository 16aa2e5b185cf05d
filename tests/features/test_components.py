"""Principal components of a sample: against scikit-learn's PCA, and by their laws."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from kscn.features import Components
from kscn.nn.rows import through


def samples(n=500, d=30, mean=0.0, seed=0):
    """Correlated data with a spectrum that falls, so that directions are well defined."""
    rng = np.random.default_rng(seed)
    mixing = np.linalg.qr(rng.standard_normal((d, d)))[0] * 0.8 ** np.arange(d)
    return (rng.standard_normal((n, d)) @ mixing.T + mean).astype(np.float32)


def components(x, count, **settings):
    """The fitted step, and what it makes of the sample."""
    step = Components.fit(torch.from_numpy(x), count, **settings)
    return step, through([step], torch.from_numpy(x)).numpy()


def same_up_to_sign(found, expected, atol):
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=atol)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("mean", [3.0, 1000.0])
def test_components_are_those_of_scikit_learn(whiten, mean):
    x = samples(mean=mean)
    ours, found = components(x, 8, whiten=whiten, unit_norm=False)
    oracle = PCA(8, whiten=whiten, svd_solver="full").fit(x.astype(np.float64))
    assert found.dtype == np.float32
    atol = 2e-4 * (mean / 3) ** 0.5
    same_up_to_sign(found, oracle.transform(x.astype(np.float64)), atol)
    same_up_to_sign(ours.directions.numpy().T, oracle.components_.T, atol)
    np.testing.assert_allclose(ours.mean, oracle.mean_, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.variance, oracle.explained_variance_, rtol=1e-4)


def test_without_a_centre_directions_are_those_of_largest_mean_square():
    x = samples(mean=3.0)
    ours, found = components(x, 4, unit_norm=False, centre=False)
    left, values, _ = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    same_up_to_sign(found, left[:, :4] * values[:4], 2e-3)
    np.testing.assert_allclose(ours.variance, values[:4] ** 2 / (len(x) - 1), rtol=1e-4)


@pytest.mark.parametrize("whiten", [False, True])
def test_a_constant_makes_homogeneous_coordinates(whiten):
    x = samples(mean=3.0)
    _, plain = components(x, 6, whiten=whiten, unit_norm=False)
    length = np.sqrt((plain**2).sum(axis=1).mean())
    _, found = components(x, 6, whiten=whiten, unit_norm=False, constant=10.0)
    np.testing.assert_allclose(found[:, :6], plain)
    np.testing.assert_allclose(found[:, 6], 10 * length, rtol=2e-3)  # of n instead of n - 1
    _, lifted = components(x, 6, whiten=whiten, constant=10.0)
    expected = found / np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(lifted, expected, rtol=1e-5, atol=1e-7)


def test_many_features_and_more_samples_than_a_block_have_the_components_of_scikit_learn():
    x = samples(5000, 600)
    oracle = PCA(6, svd_solver="full").fit(x.astype(np.float64))
    ours, _ = components(x, 6)
    same_up_to_sign(ours.directions.numpy().T, oracle.components_.T, 1e-3)


@pytest.mark.parametrize("d", [30, 37])
def test_no_sample_depends_on_the_others(d):
    x = samples(600, d)
    step, together = components(x, 8)
    for row in (0, 1, 255, 256, 599):
        alone = through([step], torch.from_numpy(x[row : row + 1]))
        np.testing.assert_array_equal(alone[0], together[row])
    backwards = through([step], torch.from_numpy(x[::-1].copy()))
    np.testing.assert_array_equal(backwards.numpy()[::-1], together)


def test_constant_features_carry_nothing():
    x = samples(100, 6)
    x[:, 2:] = 4
    _, z = components(x, 5, whiten=True, unit_norm=False)
    np.testing.assert_allclose(z[:, :2].var(axis=0, ddof=1), 1, rtol=1e-3)
    assert not z[:, 2:].any()  # not rounding blown up to variance one
    assert not components(np.ones((9, 4), np.float32), 3, whiten=True)[1].any()


@pytest.mark.parametrize("shape", [(1500, 1100), (1200, 2600)])
def test_a_few_of_many_directions_are_those_of_scikit_learn(shape):
    rng = np.random.default_rng(0)
    spread = 0.9 ** np.arange(60)
    x = (rng.normal(size=(shape[0], 60)) * spread) @ rng.normal(size=(60, shape[1]))
    x = (x + 1e-3 * rng.normal(size=shape)).astype(np.float32)
    ours, _ = components(x, 20)
    oracle = PCA(20, svd_solver="full").fit(x)
    np.testing.assert_allclose(ours.variance, oracle.explained_variance_, rtol=1e-4)
    directions = ours.directions.numpy()
    cosines = np.linalg.svd(directions @ oracle.components_.T, compute_uv=False)
    assert cosines.min() > 0.9999
    np.testing.assert_allclose(directions @ directions.T, np.eye(20), atol=1e-4)


def test_fewer_components_need_no_other_fit():
    x = samples()
    every, _ = components(x, 9, unit_norm=False)
    expected = components(x, 4, whiten=True)[1]
    found = through([every.reduced(4, whiten=True, unit_norm=True)], torch.from_numpy(x))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_few_samples_may_have_any_number_of_features():
    x = np.random.default_rng(0).standard_normal((10, 20_000)).astype(np.float32)
    _, z = components(x, 9, unit_norm=False)
    centred = x - x.mean(axis=0)
    np.testing.assert_allclose(z @ z.T, centred @ centred.T, rtol=1e-3, atol=0.1)
