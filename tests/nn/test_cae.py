"""The convolutional autoencoder: its sizes, its mirror image, and the shortcut at the image end."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from kscn.errors import InputError
from kscn.nn import ConvAutoencoder, stride2
from kscn.runtime.device import CPU


def images(*shape, seed=0, dtype=torch.float32):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def plain(network):
    """The same layers as `network`, called one after the other."""
    return nn.Sequential(*network.encoder), nn.Sequential(*network.decoder)


def test_the_network_of_the_paper():
    network = ConvAutoencoder((1, 28, 28))
    # (1 * 25 + 1) * 20 + (20 * 9 + 1) * 10 + (10 * 9 + 1) * 5, and back.
    assert count(network) == 5566
    assert network.latent_dim == 80
    latent = network.encode(images(3, 1, 28, 28))
    assert latent.shape == (3, 80)
    assert (latent >= 0).all()
    assert network.decode(latent).shape == (3, 1, 28, 28)
    maps = [network.encoder[: 2 * i](images(1, 1, 28, 28)).shape[1:] for i in (1, 2, 3)]
    assert maps == [(20, 14, 14), (10, 7, 7), (5, 4, 4)]


@st.composite
def networks(draw):
    depth = draw(st.integers(1, 3))
    shape = (draw(st.integers(1, 5)), *(draw(st.integers(2**depth, 21)) for _ in range(2)))
    channels = draw(st.lists(st.integers(1, 6), min_size=depth, max_size=depth))
    kernels = draw(st.lists(st.sampled_from([1, 3, 5, 7, 9]), min_size=depth, max_size=depth))
    return ConvAutoencoder(shape, channels, kernels, batch_norm=draw(st.booleans()))


@settings(max_examples=40)
@given(networks(), st.integers(1, 3))
def test_any_size_comes_back_in_its_own_shape(network, n):
    x = images(n, *network.shape)
    network.eval()
    latent = network.encode(x)
    assert latent.shape == (n, network.latent_dim)
    assert network.decode(latent).shape == x.shape


@settings(max_examples=40)
@given(networks())
def test_the_shortcut_computes_the_plain_layers(network):
    network = network.double().eval()
    encoder, decoder = plain(network)
    x = images(2, *network.shape, dtype=torch.float64)
    code = encoder(x)
    torch.testing.assert_close(network.encode(x), code.flatten(1))
    torch.testing.assert_close(network.decode(code.flatten(1)), decoder(code))


@pytest.mark.parametrize("kernel", [1, 5, 9])
@pytest.mark.parametrize(("channels", "sides"), [(1, (8, 8)), (3, (12, 10)), (4, (4, 6))])
def test_the_shortcut_has_the_gradients_of_the_plain_layers(kernel, channels, sides):
    down = nn.Conv2d(channels, 6, kernel, 2, kernel // 2).double()
    up = nn.ConvTranspose2d(6, channels, kernel, 2, kernel // 2, output_padding=1).double()
    assert stride2.suits(down, sides, CPU)
    assert stride2.suits(up, sides, CPU)
    x = images(2, channels, *sides, dtype=torch.float64).requires_grad_()
    code = images(2, 6, sides[0] // 2, sides[1] // 2, seed=1, dtype=torch.float64).requires_grad_()
    for layer, detour, given_ in ((down, stride2.conv, x), (up, stride2.conv_transpose, code)):
        wanted = [given_, *layer.parameters()]
        # A sum of squares, so that the gradient depends on every output.
        expected, found = layer(given_), detour(layer, given_)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            torch.autograd.grad(found.square().sum(), wanted),
            torch.autograd.grad(expected.square().sum(), wanted),
        )


def test_the_shortcut_is_taken_where_it_holds_and_only_there():
    def taken(shape, kernel):
        return stride2.suits(nn.Conv2d(shape[0], 8, kernel, 2, kernel // 2), shape[1:], CPU)

    assert taken((1, 28, 28), 5)
    assert taken((3, 32, 32), 5)
    assert not taken((1, 28, 28), 3)  # kernels of 3 and 7 do not split evenly
    assert not taken((1, 27, 28), 5)  # nor do odd sides
    assert not taken((8, 28, 28), 5)  # and many channels need no help


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 14)])
def test_the_network_is_deterministic_and_copies_are_equal(shape):
    torch.manual_seed(0)
    network = ConvAutoencoder(shape)
    other = ConvAutoencoder(**network.config())
    other.load_state_dict(network.state_dict())
    x = images(4, *shape)
    for equal in (other, copy.deepcopy(network)):
        assert torch.equal(network.encode(x), equal.encode(x))
        assert torch.equal(network.decode(network.encode(x)), equal.decode(equal.encode(x)))


def test_images_and_latents_need_not_be_contiguous():
    network = ConvAutoencoder((1, 12, 8), [4, 3], [3, 3])
    x = images(2, 1, 8, 12).mT
    torch.testing.assert_close(network.encode(x), network.encode(x.contiguous()))
    latent = network.encode(x)
    torch.testing.assert_close(network.decode(latent.T.contiguous().T), network.decode(latent))


def test_batch_norm_leaves_the_latent_signed_and_evaluation_independent_of_company():
    network = ConvAutoencoder((1, 16, 16), batch_norm=True)
    norms = sum(isinstance(layer, nn.BatchNorm2d) for layer in network.modules())
    assert norms == 4  # between layers: two on the way down, two on the way up
    network.encode(images(8, 1, 16, 16) + 1)  # training mode: statistics move
    latent = network.eval().encode(images(8, 1, 16, 16))
    assert (latent < 0).any()
    torch.testing.assert_close(network.encode(images(8, 1, 16, 16)[:1]), latent[:1])


@pytest.mark.parametrize("sides", [(8, 8), (16, 9)])
def test_batch_norm_trains_on_a_single_image_of_the_smallest_size(sides):
    network = ConvAutoencoder((1, *sides), batch_norm=True).train()
    network.decode(network.encode(images(1, 1, *sides)))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 7, 28), "images of 7 x 28 are too small for 3 layers .* at least 8 x 8; use fewer"),
        ((28, 28), r"shape \(channels, height, width\), got \(28, 28\)"),
    ],
)
def test_images_that_do_not_fit_are_refused_in_words(shape, words):
    with pytest.raises(InputError, match=words) as caught:
        ConvAutoencoder(shape)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"channels": [4, 4]}, "the same number of layers"),
        ({"channels": [], "kernels": []}, "at least one"),
        ({"channels": [4, 0, 4]}, "must be positive"),
        ({"kernels": [5, 4, 3]}, "odd"),
    ],
)
def test_impossible_layers_are_refused_in_words(params, words):
    with pytest.raises(InputError, match=words):
        ConvAutoencoder((1, 28, 28), **params)
