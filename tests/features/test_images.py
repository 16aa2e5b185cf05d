"""Steps of images: sizes, normalisation, and what is refused."""

import math

import numpy as np
import pytest
import torch

from kscn.errors import InputError
from kscn.features import Scattering2D, ScatteringMaps, block_means, scattering_steps
from kscn.nn.rows import through


def images(n, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def made(steps, x):
    return through(steps, torch.from_numpy(x)).numpy()


def scattered(x):
    return made(scattering_steps(x.shape[1:]), x)


@pytest.mark.parametrize(
    ("shape", "J", "width"),
    [
        ((28, 28), 3, 217 * 16),  # as the field has it, in 32 x 32
        ((8, 8), 2, 81 * 4),
        ((1, 16, 11), 2, 81 * 4 * 3),  # 16 x 12
        ((2, 2), 1, 9),
        ((64, 64), 4, 417 * 16),
        ((3, 64, 64), 5, 3 * 681 * 4),  # with 4 scales more than 16,384
        ((3, 100, 100), 6, 3 * 1009 * 4),  # 128 x 128
    ],
)
def test_scales_follow_the_size_of_the_images(shape, J, width):
    step = ScatteringMaps.of_shape(shape)
    assert (step.J, step.width) == (J, width)
    if math.prod(shape) < 64 * 64:  # filters of large images take seconds
        assert made([step], images(3, *shape)).shape == (3, width)


def test_maps_are_those_of_the_image_amid_zeros_divided_by_their_maxima():
    x = images(5, 6, 7)
    padded = np.pad(x, ((0, 0), (1, 1), (0, 1)))
    maps = Scattering2D((8, 8), 2, 4)(torch.from_numpy(padded)).numpy()
    divided = maps / np.abs(maps).max(axis=(2, 3), keepdims=True)
    found = made([ScatteringMaps((6, 7), 2, 4)], x)
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
    means = block_means(shape, 11)
    np.testing.assert_allclose(made(means, x), small.reshape(3, -1), rtol=1e-6)
    assert means[0].out_shape == small.shape[1:]
    assert not block_means(shape, 33)


def test_images_too_large_to_scatter_are_scattered_smaller():
    x = images(2, 130, 65)
    means, scattering = scattering_steps((130, 65))
    small = made([means], x).reshape(2, 44, 22)
    np.testing.assert_array_equal(made([means, scattering], x), scattered(small))


def test_blank_and_constant_images_give_no_noise():
    x = np.zeros((3, 8, 8), dtype=np.float32)
    x[1] = 5
    features = scattered(x).reshape(3, 81, 4)
    assert not features[0].any()
    np.testing.assert_allclose(features[1, 0], 1, rtol=1e-3)
    # The waves of a constant are rounding, and dividing rounding by its maximum is noise.
    assert np.abs(features[1, 1:]).max() < 0.1


@pytest.mark.parametrize("shape", [(64,), (1, 3, 8, 8)])
def test_what_is_no_image_is_refused(shape):
    with pytest.raises(InputError, match="needs images"):
        scattering_steps(shape)


@pytest.mark.parametrize(
    ("params", "told"), [({"J": 4}, "lower J=4"), ({"J": 0}, "J=0"), ({"J": 1, "L": 0}, "L=0")]
)
def test_impossible_settings_are_refused(params, told):
    with pytest.raises(InputError, match=told):
        ScatteringMaps((8, 8), **params)


@pytest.mark.parametrize("factor", [2.0**-100, 2.0**100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalised_features_do_not_depend_on_the_scale(factor, dtype):
    x = images(4, 8, 8).astype(dtype)
    np.testing.assert_array_equal(scattered(x * dtype(factor)), scattered(x))
