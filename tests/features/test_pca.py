"""Principal components from sums over blocks: against scikit-learn's PCA, and by their laws."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

from kscn.errors import InputError
from kscn.features import PCAFeatures


@parametrize_with_checks([PCAFeatures(), PCAFeatures(1, whiten=True, unit_norm=False)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def samples(n=500, d=30, dtype=np.float64, mean=0.0, seed=0):
    """Correlated data with a spectrum that falls, so that directions are well defined."""
    rng = np.random.default_rng(seed)
    mixing = np.linalg.qr(rng.standard_normal((d, d)))[0] * 0.8 ** np.arange(d)
    return (rng.standard_normal((n, d)) @ mixing.T + mean).astype(dtype)


def same_up_to_sign(found, expected, atol):
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=atol)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-9), (np.float32, 2e-4)])
def test_components_are_those_of_scikit_learn(whiten, dtype, atol):
    x = samples(dtype=dtype, mean=3.0)
    ours = PCAFeatures(8, whiten=whiten, unit_norm=False).fit(x)
    oracle = PCA(8, whiten=whiten, svd_solver="full").fit(x.astype(np.float64))
    found = ours.transform(x)
    assert found.dtype == dtype
    same_up_to_sign(found, oracle.transform(x.astype(np.float64)), atol)
    same_up_to_sign(ours.components_.T, oracle.components_.T, atol)
    np.testing.assert_allclose(ours.mean_, oracle.mean_, atol=atol)
    np.testing.assert_allclose(ours.explained_variance_, oracle.explained_variance_, rtol=1e-4)


@pytest.mark.parametrize("whiten", [False, True])
def test_a_constant_makes_homogeneous_coordinates(whiten):
    x = samples(mean=3.0)
    plain = PCAFeatures(6, whiten=whiten, unit_norm=False).fit_transform(x)
    length = np.sqrt((plain**2).sum(axis=1).mean())
    found = PCAFeatures(6, whiten=whiten, unit_norm=False, constant=10.0).fit_transform(x)
    np.testing.assert_allclose(found[:, :6], plain)
    np.testing.assert_allclose(found[:, 6], 10 * length, rtol=2e-3)  # of n instead of n - 1
    features = PCAFeatures(6, whiten=whiten, constant=10.0).fit(x)
    lifted = features.transform(x)
    assert lifted.shape == (len(x), 7)
    np.testing.assert_allclose(lifted, found / np.linalg.norm(found, axis=1, keepdims=True))


def test_many_features_and_more_samples_than_a_block_have_the_components_of_scikit_learn():
    x = samples(5000, 600, np.float32)
    oracle = PCA(6, svd_solver="full").fit(x.astype(np.float64))
    found = PCAFeatures(6, unit_norm=False).fit(x)
    same_up_to_sign(found.components_.T, oracle.components_.T, 1e-3)


def test_a_large_common_value_does_no_harm():
    x = samples(dtype=np.float32, mean=1000.0)
    found = PCAFeatures(5, unit_norm=False).fit(x)
    oracle = PCA(5, svd_solver="full").fit(x.astype(np.float64))
    np.testing.assert_allclose(found.explained_variance_, oracle.explained_variance_, rtol=1e-4)


@pytest.mark.parametrize("d", [30, 37])
def test_no_sample_depends_on_the_others(d):
    x = samples(600, d, np.float32)
    features = PCAFeatures(8).fit(x)
    together = features.transform(x)
    for row in (0, 1, 255, 256, 599):
        np.testing.assert_array_equal(features.transform(x[row : row + 1])[0], together[row])
    np.testing.assert_array_equal(features.transform(x[::-1])[::-1], together)
    np.testing.assert_array_equal(features.source(x).take([5, 400]), together[[5, 400]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_features_carry_nothing(dtype):
    x = samples(100, 6, dtype)
    x[:, 2:] = 4
    z = PCAFeatures(5, whiten=True, unit_norm=False).fit_transform(x)
    np.testing.assert_allclose(z[:, :2].var(axis=0, ddof=1), 1, rtol=1e-3)
    assert not z[:, 2:].any()  # not rounding blown up to variance one
    assert not PCAFeatures(3, whiten=True).fit_transform(np.ones((9, 4), dtype)).any()


@pytest.mark.parametrize("shape", [(1500, 1100), (1200, 2600)])
def test_a_few_of_many_directions_are_those_of_scikit_learn(shape):
    rng = np.random.default_rng(0)
    spread = 0.9 ** np.arange(60)
    x = (rng.normal(size=(shape[0], 60)) * spread) @ rng.normal(size=(60, shape[1]))
    x = (x + 1e-3 * rng.normal(size=shape)).astype(np.float32)
    ours = PCAFeatures(20, unit_norm=False).fit(x)
    oracle = PCA(20, svd_solver="full").fit(x)
    np.testing.assert_allclose(ours.explained_variance_, oracle.explained_variance_, rtol=1e-4)
    cosines = np.linalg.svd(ours.components_ @ oracle.components_.T, compute_uv=False)
    assert cosines.min() > 0.9999
    np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(20), atol=1e-4)


@pytest.mark.parametrize(
    ("params", "n", "told"),
    [
        ({"n_components": 2.0}, 500, "None or an integer of at least 1"),
        ({"n_components": 31}, 500, "n_components=31 .* from 1 to 30"),
        ({"n_components": 6}, 5, "from 1 to 5, the smaller of n_samples=5"),
        ({"constant": np.nan}, 500, "a number of at least 0"),
        ({}, 1, "at least 2 samples"),
    ],
)
def test_impossible_settings_are_refused(params, n, told):
    with pytest.raises(InputError, match=told):
        PCAFeatures(**params).fit(samples(n))


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_samples_that_are_no_numbers_are_refused(value, what):
    x = samples()
    features = PCAFeatures(3).fit(x)
    x[-1, 4] = value
    for method in (PCAFeatures(3).fit, features.transform):
        with pytest.raises(InputError, match=f"contains {what}"):
            method(x)


def test_values_that_cannot_be_squared_are_refused():
    with pytest.raises(InputError, match="squares cannot be represented"):
        PCAFeatures(3).fit(samples(dtype=np.float32) * np.float32(1e30))


def test_too_many_features_are_refused_before_anything_is_read():
    wide = np.broadcast_to(np.float32(0), (12_000, 20_000))
    with pytest.raises(InputError, match="would take 3 GiB"):
        PCAFeatures(2).fit(wide)


def test_few_samples_may_have_any_number_of_features():
    x = np.random.default_rng(0).standard_normal((10, 20_000))
    z = PCAFeatures(9, unit_norm=False).fit_transform(x)
    centred = x - x.mean(axis=0)
    np.testing.assert_allclose(z @ z.T, centred @ centred.T, atol=1e-6)
