"""Vectors of any scale become vectors of one scale."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kscn.errors import InputError
from kscn.features import ScaledFeatures


def samples(n=50, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * [1, 2, 3, 4, 5, 0.1] + 7


@parametrize_with_checks([ScaledFeatures()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [1e-30, 1e-18, 1.0, 1e18, 1e30])
def test_samples_have_mean_zero_and_deviation_one_at_any_scale(factor, dtype):
    x = samples()
    z = ScaledFeatures().fit_transform((x * factor).astype(dtype))
    assert z.dtype == np.float32
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-5)
    assert np.square(z, dtype=float).mean() == pytest.approx(1, rel=1e-4)
    np.testing.assert_allclose(z, ScaledFeatures().fit_transform(x), atol=1e-4)


def test_integers_of_any_size_are_taken():
    x = (samples() * 1e3).astype(np.int64)
    np.testing.assert_allclose(
        ScaledFeatures().fit_transform(x), ScaledFeatures().fit_transform(x * 10**12), atol=1e-5
    )


@pytest.mark.parametrize("shape", [(20, 13), (3, 20, 13)])
def test_large_images_are_described_by_the_means_of_blocks(shape):
    x = np.random.default_rng(0).standard_normal((30, *shape)).astype(np.float32)
    features = ScaledFeatures(largest_side=10).fit(x)
    z = features.transform(x)
    plain = ScaledFeatures().fit_transform(x).reshape(-1, 20, 13)
    blocks = [
        plain[:, i : i + 2, j : j + 2].mean(axis=(1, 2))
        for i in range(0, 20, 2)
        for j in range(0, 13, 2)
    ]
    np.testing.assert_allclose(z, np.stack(blocks, axis=1).reshape(30, -1), atol=1e-6)
    np.testing.assert_array_equal(
        ScaledFeatures(largest_side=20).fit_transform(x).reshape(-1, 20, 13), plain
    )


def test_a_grey_image_may_come_with_its_only_channel():
    x = np.random.default_rng(0).standard_normal((9, 4, 4))
    features = ScaledFeatures().fit(x)
    np.testing.assert_array_equal(features.transform(x[:, None]), features.transform(x))
    with pytest.raises(InputError, match="samples of shape"):
        features.transform(np.zeros((9, 2, 4, 4)))
