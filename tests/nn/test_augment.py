"""Augmentation: how far it goes, that it goes nowhere at strength zero, and its seed."""

import pytest
import torch

from kscn.nn import RandomAffine, RandomNoise

BENDING = RandomAffine(bend=0.03)
STILL = {"angle": 0.0, "shear": 0.0, "scale": 0.0, "shift": 0.0}


def images(n=6, c=1, h=12, w=12, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, c, h, w, generator=generator, dtype=dtype)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("h", "w"), [(12, 12), (9, 14)])
def test_without_strength_images_stay_what_they_are(dtype, h, w):
    x = images(c=3, h=h, w=w, dtype=dtype)
    torch.testing.assert_close(RandomAffine(**STILL)(x, seeded()), x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 1, 8, 8), (3, 3, 9, 14), (1, 2, 28, 28)])
@pytest.mark.parametrize("augment", [RandomAffine(), RandomAffine(flip=True), BENDING])
def test_shapes_types_and_ranges_stay(shape, augment):
    for dtype in (torch.float32, torch.float64):
        x = images(*shape, dtype=dtype)
        out = augment(x, seeded())
        assert out.shape == x.shape
        assert out.dtype == dtype
        assert out.isfinite().all()
        assert out.min() >= 0
        assert out.max() <= x.max() + 1e-6
        assert not torch.equal(out, x)


@pytest.mark.parametrize("augment", [RandomAffine(flip=True), BENDING, RandomNoise()])
def test_a_seed_repeats_and_another_does_not(augment):
    x = images()
    before = x.clone()
    torch.testing.assert_close(augment(x, seeded(1)), augment(x, seeded(1)), rtol=0, atol=0)
    assert not torch.equal(augment(x, seeded(1)), augment(x, seeded(2)))
    assert torch.equal(x, before)


def test_torchs_own_generator_is_left_alone():
    state = torch.random.get_rng_state()
    RandomAffine(flip=True)(images(), seeded())
    RandomNoise()(images(), seeded())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_every_image_gets_its_own_draw_and_its_channels_share_it():
    one = images(1).expand(5, 3, -1, -1)
    out = RandomAffine()(one, seeded())
    assert not torch.equal(out[0], out[1])
    assert torch.equal(out[:, 0], out[:, 1])


def test_a_flip_is_a_mirror_image():
    x = images(40)
    out = RandomAffine(**STILL, flip=True)(x, seeded())
    same = (out - x).abs().amax(dim=(1, 2, 3)) < 1e-5
    mirrored = (out - x.flip(3)).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert (same ^ mirrored).all()
    assert 8 < int(mirrored.sum()) < 32


def centre(image):
    """Centre of mass (row, column) of a (1, h, w) image."""
    h, w = image.shape[-2:]
    rows = (image.sum(-1) * torch.arange(h)).sum() / image.sum()
    columns = (image.sum(-2) * torch.arange(w)).sum() / image.sum()
    return torch.stack([rows, columns])


def test_a_shift_goes_as_far_as_it_may_and_no_farther():
    x = torch.zeros(200, 1, 20, 20)
    x[:, :, 9:11, 9:11] = 1
    out = RandomAffine(**STILL | {"shift": 0.2})(x, seeded())
    moved = torch.stack([centre(image) - centre(x[0]) for image in out])
    assert moved.abs().max() <= 4 + 1e-3  # 0.2 * 20 pixels
    assert moved.abs().amax(dim=0).min() > 3.5
    assert moved.mean(dim=0).abs().max() < 0.6


def test_a_turn_goes_as_far_as_it_may_and_no_farther():
    x = torch.zeros(200, 1, 41, 41)
    x[:, :, 20, 34:37] = 1  # to the right of the centre, by 15 pixels
    out = RandomAffine(**STILL | {"angle": 30.0})(x, seeded())
    at = torch.stack([centre(image) - 20 for image in out])
    angles = torch.atan2(at[:, 0], at[:, 1]).rad2deg()
    assert angles.abs().max() < 31
    assert angles.max() > 25
    assert angles.min() < -25
    torch.testing.assert_close(at.norm(dim=1), torch.full((200,), 15.0), rtol=0.03, atol=0)


def test_noise_is_a_share_of_the_signal():
    x = 5 * torch.randn(2000, 10, generator=seeded(3))
    noise = RandomNoise(level=0.2)(x, seeded()) - x
    ratio = noise.square().mean().sqrt() / x.square().mean().sqrt()
    assert float(ratio) == pytest.approx(0.2, rel=0.03)
    assert torch.equal(RandomNoise(level=0.0)(x, seeded()), x)


def test_bending_moves_neighbours_alike_and_distant_parts_differently():
    h = w = 32
    down, across = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    x = torch.stack([down, across]).float()[None].expand(64, 2, h, w)  # pixels hold their place
    moved = RandomAffine(**STILL, bend=0.02)(x, seeded()) - x
    inner = moved[:, :, 6:-6, 6:-6]  # what comes from beyond the border is zero
    assert 0.01 * h < inner.std() < 0.03 * h
    steps = inner.diff(dim=2).abs()
    assert steps.max() < 0.6  # smooth: no pixel overtakes the next
    apart = torch.corrcoef(torch.stack([inner[:, 0, 0, 0], inner[:, 0, -1, -1]]))[0, 1]
    near = torch.corrcoef(torch.stack([inner[:, 0, 0, 0], inner[:, 0, 1, 1]]))[0, 1]
    assert near > 0.95
    assert apart.abs() < 0.4
