"""Two-order scattering: against kymatio, against the definition, and by its laws."""

import copy
import pickle

import numpy as np
import pytest
import torch

from kscn.errors import InputError
from kscn.features import Scattering2D
from kscn.features.scattering import maps_of

CASES = [
    ((32, 32), 3, 8),
    ((28, 28), 3, 8),
    ((8, 8), 3, 8),  # the border is as large as the image
    ((8, 8), 2, 8),
    ((17, 30), 2, 5),
    ((12, 9), 1, 4),
    ((40, 33), 4, 3),
    ((4, 5), 2, 1),
]


def images(n, *shape, seed=0):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def small():
    return Scattering2D((8, 8), 2, 4)


@pytest.mark.parametrize(("shape", "J", "L"), CASES)
def test_the_result_is_that_of_kymatio(kymatio, shape, J, L):
    x = images(5, *shape)
    ours, theirs = Scattering2D(shape, J, L)(x), kymatio(J, shape, L)(x)
    assert ours.shape == theirs.shape
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_handwriting_gives_what_kymatio_gives(kymatio):
    from sklearn.datasets import load_digits

    x = torch.from_numpy(load_digits().images[:64]).float().repeat_interleave(4, 1)
    x = x.repeat_interleave(4, 2)
    ours, theirs = Scattering2D((32, 32))(x), kymatio(3, (32, 32))(x)
    assert ours.shape == (64, 217, 4, 4)
    assert float((ours - theirs).abs().max() / theirs.abs().max()) < 1e-5
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6 * float(theirs.max()))


@pytest.mark.parametrize(("shape", "J", "L"), [((8, 12), 2, 4), ((7, 6), 1, 3)])
def test_the_result_is_near_the_definition(scattering_by_definition, shape, J, L):
    x = images(1, *shape)[0]
    ours = Scattering2D(shape, J, L)(x[None])[0].numpy()
    expected = scattering_by_definition(x.double().numpy(), J, L)
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours[0], expected[0], rtol=1e-5)  # no modulus, no aliasing
    # What subsampling adds by aliasing, far below any change of filters or order.
    assert np.abs(ours - expected).max() < 0.01 * np.abs(expected).max()
    finest = slice(1, 1 + L)  # at full resolution there is no aliasing before the average
    np.testing.assert_allclose(ours[finest], expected[finest], rtol=1e-3)


def test_sizes_follow_from_scales_and_angles():
    for shape, J, L in CASES:
        scattering = Scattering2D(shape, J, L)
        n_maps = 1 + L * J + L * L * sum(J - 1 - j for j in range(J))
        assert scattering.n_maps == n_maps
        assert scattering.map_shape == (shape[0] // 2**J, shape[1] // 2**J)
        assert maps_of(shape, J, L) == (n_maps, scattering.map_shape)


def test_scaling_an_image_scales_its_maps(small):
    x = images(3, 8, 8)
    torch.testing.assert_close(small(7 * x), 7 * small(x))
    assert not small(torch.zeros(2, 8, 8)).any()


def test_a_constant_image_has_a_mean_and_no_waves(small):
    maps = small(torch.full((1, 8, 8), 3.0))[0]
    torch.testing.assert_close(maps[0], torch.full((2, 2), 3.0), rtol=1e-3, atol=0)
    assert maps[1:].abs().max() < 1e-5


def test_bytes_count_as_their_numbers(small):
    x = (255 * images(3, 8, 8)).to(torch.uint8)
    assert torch.equal(small(x), small(x.float()))
    assert torch.equal(small(x), small(x.double()))


def test_channels_are_scattered_one_by_one(small):
    x = images(5, 3, 8, 8)
    maps = small(x)
    assert maps.shape == (5, 3, small.n_maps, 2, 2)
    for channel in range(3):
        assert torch.equal(maps[:, channel], small(x[:, channel]))


@pytest.mark.parametrize("shape", [(32, 32), (8, 8), (12, 9)])
def test_no_image_depends_on_the_others(shape):
    scattering = Scattering2D(shape, 1, 4)
    x = images(2 * scattering.images_at_once + 3, *shape)
    together = scattering(x)
    for row in (0, 1, 7, len(x) - 1):
        assert torch.equal(scattering(x[row : row + 1])[0], together[row])
    assert torch.equal(scattering(x.flip(0)).flip(0), together)


def test_threads_change_nothing_and_are_given_back(small):
    x = images(5 * small.images_at_once, 8, 8)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = small(x)
        torch.set_num_threads(2)
        assert torch.equal(small(x), alone)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_many_pieces_side_by_side_have_the_same_result():
    scattering = Scattering2D((8, 8), 2, 4)
    x = images(4 * scattering.images_at_once + 3, 8, 8)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        plain = scattering(x)
        torch.set_num_threads(2)
        for context in (torch.inference_mode, torch.no_grad, torch.enable_grad):
            with context():
                assert torch.equal(scattering(x), plain)
        grey = (255 * x).to(torch.uint8)
        assert torch.equal(scattering(grey), scattering(grey.float()))
        assert torch.equal(copy.deepcopy(scattering)(x), plain)
        assert torch.equal(pickle.loads(pickle.dumps(scattering))(x), plain)
        assert scattering.double()(x.double()).dtype == torch.float64
        assert torch.equal(scattering.float()(x), plain)
    finally:
        torch.set_num_threads(before)


def test_strided_images_are_read_right(small):
    x = images(4, 16, 16)[:, ::2, ::2].transpose(1, 2)
    assert torch.equal(small(x), small(x.contiguous()))


def test_no_images_give_no_maps(small):
    assert small(torch.empty(0, 8, 8)).shape == (0, small.n_maps, 2, 2)
    assert small(torch.empty(0, 3, 8, 8)).shape == (0, 3, small.n_maps, 2, 2)


def test_filters_are_not_saved_but_copied(small):
    assert not small.state_dict()
    x = images(2, 8, 8)
    assert torch.equal(copy.deepcopy(small)(x), small(x))
    assert copy.deepcopy(small).double()(x).dtype == torch.float64


@pytest.mark.parametrize("shape", [(8, 8), (3, 8, 9), (2, 9, 8), (1, 1, 3, 8, 8), (64,)])
def test_images_of_another_shape_are_refused(small, shape):
    with pytest.raises(InputError, match=r"expected \(n, 8, 8\)"):
        small(torch.zeros(shape))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"J": 0}, "J=0 must be an integer of at least 1"),
        ({"J": True}, "J=True must be"),
        ({"J": 2.0}, "J=2.0 must be"),
        ({"L": -1}, "L=-1 must be"),
        ({"J": 4}, r"8 x 8 pixels are smaller than 2\*\*4; lower J=4"),
        ({"J": 10**6}, "lower J=1000000"),
        ({"shape": (8000, 8000)}, "shrink the images"),
        ({"shape": (14_000, 8)}, "need filters of .* numbers, above the limit"),
        ({"shape": (8, 262_144)}, "shrink the images"),
        ({"shape": (1024, 1024), "J": 8}, "shrink the images"),
        ({"L": 10**9}, "shrink the images"),
    ],
)
def test_impossible_settings_are_refused(arguments, told):
    with pytest.raises(InputError, match=told):
        Scattering2D(**({"shape": (8, 8), "J": 1} | arguments))
