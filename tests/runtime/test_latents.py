"""Latents of a data set: each sample's own, whichever others are encoded with it."""

import numpy as np
import pytest
import torch
from torch import nn

from kscn.data import as_source
from kscn.errors import TrainingError
from kscn.nn import (
    ConvAutoencoder,
    DeepNetwork,
    DenseAutoencoder,
    IdentityLatent,
    InputScaling,
    WhitenedLatent,
)
from kscn.nn.rows import block_rows, in_whole_blocks
from kscn.runtime.lazy import Lazy, kept
from kscn.runtime.minibatches import Minibatches, encode
from kscn.runtime.moments import code_moments, moments


class Own(nn.Module):
    """A user's module, of plain layers."""

    n_features = 13

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(13, 21), nn.Linear(21, 8))

    def encode(self, x):
        return self.down(x)


def rand(*shape, seed=0):
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def batches(X, shape):
    return Minibatches(as_source(X), InputScaling(), shape, 16, torch.device("cpu"))


def networks():
    torch.manual_seed(0)
    return {
        "paper": (ConvAutoencoder((1, 28, 28)), IdentityLatent()),
        "batch norm": (ConvAutoencoder((1, 12, 12), batch_norm=True), IdentityLatent()),
        "colour": (ConvAutoencoder((3, 9, 14), [8, 6], [5, 3]), WhitenedLatent(72, 7)),
        "dense": (DenseAutoencoder(17, [31, 64], 5), WhitenedLatent(5, 3)),
        # Widths at which plain matrix products round by the place of a row.
        "narrow": (DenseAutoencoder(6, [8, 21], 8), WhitenedLatent(8, 5)),
        "own": (Own(), IdentityLatent()),
    }


def case(name):
    network, latent = networks()[name]
    shape = tuple(getattr(network, "shape", None) or (network.n_features,))
    return network, latent, shape


@pytest.mark.parametrize("name", ["paper", "batch norm", "colour", "dense", "narrow", "own"])
def test_a_sample_has_the_same_latent_to_the_bit_in_any_company(name):
    network, latent, shape = case(name)
    X = rand(700, *shape)
    given, encoder = batches(X, shape), DeepNetwork(network, latent)
    network.train()
    network.encode(
        torch.from_numpy(X[:64])
    )  # statistics of BatchNorm that are not the initial ones
    whole = encode(given, encoder)[:]
    assert whole.dtype == np.float32
    for rows in ([0], [699], [3, 1, 2], [650, 5], np.random.default_rng(0).permutation(700)):
        alone = encode(batches(X[rows], shape), encoder)[:]
        np.testing.assert_array_equal(alone, whole[rows])


@pytest.mark.parametrize("name", ["paper", "batch norm", "dense"])
def test_latents_are_what_the_network_says_in_evaluation_mode(name):
    network, latent, shape = case(name)
    X = rand(40, *shape)
    found = encode(batches(X, shape), DeepNetwork(network.train(), latent))[:]
    with torch.no_grad():
        expected = latent(network.eval().encode(torch.from_numpy(X)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_latents_too_large_to_keep_are_encoded_whenever_read():
    network, latent, shape = case("colour")
    X = rand(600, *shape)
    steps, device = [InputScaling(), network, latent], torch.device("cpu")
    lazy = Lazy(as_source(X), steps, device, shape, name="the latents")
    held = encode(batches(X, shape), DeepNetwork(network, latent))
    assert kept(lazy, 0) is lazy and not isinstance(held, Lazy)
    assert (len(lazy), lazy.shape, lazy.dtype) == (600, held.shape, np.float32)
    assert "the latents of X" in lazy.name
    rows = np.array([599, 0, 17, 17, 300])
    for one, other in (
        (lazy[:], held[:]),
        (lazy[510:530], held[510:530]),
        (lazy[::7], held[::7]),
        (lazy.take(rows), held.take(rows)),
        (lazy.take(np.arange(600)[::-1]), held[:][::-1]),
        (np.concatenate([b for _, b in lazy.batches(37)]), held[:]),
    ):
        np.testing.assert_array_equal(one, other)
    with torch.no_grad():
        network.encoder[0].bias += 1  # as training would
    assert not np.array_equal(lazy[:5], held[:5])


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((1, 28, 28), 512), ((784,), 512), ((10,), 512), ((3, 64, 64), 64), ((3, 224, 224), 16)],
)
def test_blocks_of_large_images_have_fewer_rows(shape, rows):
    assert block_rows(shape) == rows


def test_a_network_sees_blocks_of_one_size_only():
    seen = []

    def double(batch):
        seen.append(len(batch))
        return 2 * batch

    for n in (1, 511, 512, 1000):
        x = torch.from_numpy(rand(n, 3))
        assert torch.equal(in_whole_blocks(double, x), 2 * x)
    assert set(seen) == {512}


def test_moments_are_numpys():
    z = rand(300, 5) + 3
    mean, covariance = moments(as_source(z))
    np.testing.assert_allclose(mean, z.mean(axis=0, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(covariance, np.cov(z.T, bias=True), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(
    ("z", "words"),
    [
        (np.zeros((9, 4), dtype=np.float32), "the latent collapsed"),
        (np.full((9, 4), 1e3, dtype=np.float32), "the latent collapsed"),
        (np.full((9, 4), np.nan, dtype=np.float32), "collapsed or is no longer finite"),
        (np.full((9, 4), np.inf, dtype=np.float32), "collapsed or is no longer finite"),
    ],
)
def test_codes_that_carry_nothing_are_refused(z, words):
    with pytest.raises(TrainingError, match=words):
        code_moments(as_source(z))
