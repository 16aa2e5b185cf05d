"""Scattering as features: sizes, normalisation, and what is refused."""

import math

import numpy as np
import pytest
import torch

from kscn.data import Source
from kscn.errors import InputError
from kscn.features import FeatureChain, Scattering2D, ScatteringFeatures


def images(n, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize(
    ("shape", "J", "width"),
    [
        ((28, 28), 3, 217 * 16),  # as the field has it, in 32 x 32
        ((8, 8), 2, 81 * 4),
        ((1, 16, 11), 2, 81 * 4 * 3),  # 16 x 12
        ((2, 2), 1, 9),
        ((64, 64), 4, 417 * 16),
        ((3, 64, 64), 5, 3 * 681 * 4),  # with 4 scales more than PCAFeatures takes
        ((3, 100, 100), 6, 3 * 1009 * 4),  # 128 x 128
    ],
)
def test_scales_follow_the_size_of_the_images(shape, J, width):
    features = ScatteringFeatures().fit(images(2, *shape))
    assert features.J_ == J
    assert features.get_feature_names_out().shape == (width,)
    if math.prod(shape) < 64 * 64:  # filters of large images take seconds
        assert features.transform(images(3, *shape)).shape == (3, width)


def test_maps_are_those_of_the_image_amid_zeros_divided_by_their_maxima():
    x = images(5, 6, 7)
    padded = np.pad(x, ((0, 0), (1, 1), (0, 1)))
    maps = Scattering2D((8, 8), 2, 4)(torch.from_numpy(padded)).numpy()
    divided = maps / np.abs(maps).max(axis=(2, 3), keepdims=True)
    found = ScatteringFeatures(2, 4).fit_transform(x)
    np.testing.assert_allclose(found, divided.reshape(5, -1), rtol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize("shape", [(20, 33), (3, 33, 20)])
def test_large_images_are_made_smaller_by_the_means_of_blocks(shape):
    x = images(3, *shape)
    high, wide = shape[-2:]
    blocks = [
        [x[..., y : y + 3, z : z + 3].mean(axis=(-2, -1)) for z in range(0, wide, 3)]
        for y in range(0, high, 3)
    ]
    small = np.moveaxis(np.array(blocks), (0, 1), (-2, -1)).astype(np.float32)
    found = ScatteringFeatures(largest_side=11).fit(x)
    expected = ScatteringFeatures().fit(small)
    assert found.J_ == expected.J_
    np.testing.assert_allclose(found.transform(x), expected.transform(small), atol=2e-5)
    same = FeatureChain.from_state(*FeatureChain.of_fitted([found]).state())
    np.testing.assert_array_equal(same.transform(x), found.transform(x))
    as_they_are = ScatteringFeatures(largest_side=33).fit_transform(x)
    np.testing.assert_array_equal(as_they_are, ScatteringFeatures().fit_transform(x))


def test_blank_and_constant_images_give_no_noise():
    x = np.zeros((3, 8, 8), dtype=np.float32)
    x[1] = 5
    features = ScatteringFeatures().fit_transform(x).reshape(3, 81, 4)
    assert not features[0].any()
    np.testing.assert_allclose(features[1, 0], 1, rtol=1e-3)
    # The waves of a constant are rounding, and dividing rounding by its maximum is noise.
    assert np.abs(features[1, 1:]).max() < 0.1


def test_features_can_be_read_lazily():
    x = images(50, 8, 8)
    features = ScatteringFeatures().fit(x)
    expected = features.transform(x)
    source = features.source(x)
    assert isinstance(source, Source)
    assert (len(source), source.shape, source.dtype) == (50, (324,), np.float32)
    np.testing.assert_array_equal(source[10:13], expected[10:13])
    np.testing.assert_array_equal(source.take([7, 3, 7]), expected[[7, 3, 7]])
    for first, block in source.batches(16):
        np.testing.assert_array_equal(block, expected[first : first + 16])


@pytest.mark.parametrize("shape", [(4, 64), (4, 1, 3, 8, 8)])
def test_what_is_no_image_is_refused(shape):
    with pytest.raises(InputError, match="needs images"):
        ScatteringFeatures().fit(np.zeros(shape))


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"J": 4}, "lower J=4"),
        ({"J": 0}, "J=0"),
        ({"L": 0}, "L=0"),
    ],
)
def test_impossible_settings_are_refused(params, told):
    with pytest.raises(InputError, match=told):
        ScatteringFeatures(**params).fit(images(2, 8, 8))


@pytest.mark.parametrize("factor", [2.0**-100, 2.0**100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalised_features_do_not_depend_on_the_scale(factor, dtype):
    x = images(4, 8, 8).astype(dtype)
    features = ScatteringFeatures().fit(x)
    np.testing.assert_array_equal(features.transform(x * dtype(factor)), features.transform(x))
