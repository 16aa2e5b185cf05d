"""The dense autoencoder."""

import itertools

import pytest
import torch
from torch import nn

from kscn.errors import InputError
from kscn.nn import DenseAutoencoder


def test_the_network_of_dec_and_dcn():
    network = DenseAutoencoder(784)
    widths = [784, 500, 500, 2000, 10, 2000, 500, 500, 784]
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert [layers[0].in_features, *(layer.out_features for layer in layers)] == widths
    pairs = itertools.pairwise(widths)
    expected = sum((before + 1) * after for before, after in pairs)
    assert sum(parameter.numel() for parameter in network.parameters()) == expected


@pytest.mark.parametrize("hidden", [[], [7], [9, 6, 5]])
def test_any_widths_come_back_in_their_own_shape(hidden):
    network = DenseAutoencoder(12, hidden, 4)
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    latent = network.encode(x)
    assert latent.shape == (5, 4)
    assert network.decode(latent).shape == (5, 12)
    again = DenseAutoencoder(**network.config())
    again.load_state_dict(network.state_dict())
    assert torch.equal(again.decode(again.encode(x)), network.decode(latent))


def test_latent_and_output_are_linear_so_that_they_can_be_negative():
    network = DenseAutoencoder(6, [8], 3)
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    assert (network.encode(x) < 0).any()
    assert (network.decode(network.encode(x)) < 0).any()
    assert isinstance(network.encoder[1], nn.ReLU)
    assert isinstance(network.encoder[-1], nn.Linear)
    assert isinstance(network.decoder[-1], nn.Linear)


@pytest.mark.parametrize("args", [(0,), (5, [3, 0]), (5, [3], 0), (5, [3], -1)])
def test_impossible_widths_are_refused(args):
    with pytest.raises(InputError, match="must be positive"):
        DenseAutoencoder(*args)
