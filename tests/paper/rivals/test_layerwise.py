"""Layer-wise pretraining: each layer by itself, from the outside in, and a better start for all."""

import numpy as np
import pytest
import torch
from torch import nn

from kscn.data import as_source
from kscn.errors import TrainingError
from kscn.nn import DenseAutoencoder, InputScaling
from kscn.runtime.minibatches import Minibatches
from kscn_paper.rivals.autoencoder import LayerInputs, LayerPair, layer_pairs, pretrain


def samples(n=200, d=12):
    """Samples near a curved surface of three dimensions."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, 3, generator=generator)
    return torch.tanh(hidden @ torch.randn(3, d, generator=generator))


def minibatches(batch_size=20, scale=1.0):
    scaling = InputScaling.by(torch.zeros(()), scale)
    return Minibatches(as_source(samples()), scaling, (12,), batch_size, torch.device("cpu"))


def built(hidden=(16, 8), latent_dim=3):
    torch.manual_seed(0)
    return DenseAutoencoder(12, hidden, latent_dim)


def pretrained(network, epochs=8, record=lambda *_, **__: None, **batches):
    """Its layers alone."""
    settings = {"layer_epochs": epochs, "epochs": 0, "seed": 1, "cache": False}
    pretrain(network, minibatches(**batches), record=record, **settings)
    return network


def error(network):
    with torch.no_grad():
        return float(
            (network.decode(network.encode(samples())) - samples()).square().sum(dim=1).mean()
        )


def test_the_whole_network_restores_better_although_it_was_never_trained_as_one():
    before = error(built())
    assert error(pretrained(built(), epochs=60)) < 0.7 * before


def test_every_layer_learns_in_turn_and_its_error_falls():
    records = []
    pretrained(built(), record=lambda stage, **values: records.append({"stage": stage, **values}))
    stages = [f"pretrain layer {layer}" for layer in (1, 2, 3)]
    assert [(record["stage"], record["epoch"]) for record in records] == [
        (stage, epoch) for stage in stages for epoch in range(1, 9)
    ]
    for stage in stages:
        errors = [record["reconstruction"] for record in records if record["stage"] == stage]
        assert errors[-1] < errors[0]


def test_training_a_layer_leaves_all_others_alone():
    network = built()
    states = []

    def keep(*_, **__):
        states.append([[p.clone() for p in (*d.parameters(), *u.parameters())]
                       for d, u in layer_pairs(network)])  # fmt: skip

    pretrained(network, epochs=1, record=keep)
    start = [[*d.parameters(), *u.parameters()] for d, u in layer_pairs(built())]
    for trained, (before, after) in enumerate(zip([start, *states[:-1]], states, strict=True)):
        for layer in range(3):
            same = all(torch.equal(a, b) for a, b in zip(before[layer], after[layer], strict=True))
            assert same == (layer != trained)


def test_without_dropout_pairs_are_the_layers_of_the_network():
    network, x = built(), samples()
    pairs = [LayerPair(network, layer, 0.0) for layer in range(3)]
    z = x
    for pair in pairs:
        z = pair.encode(z)
    torch.testing.assert_close(z, network.encode(x))
    for pair in reversed(pairs):
        z = pair.decode(z)
    torch.testing.assert_close(z, network.decode(network.encode(x)))


def test_inputs_and_codes_are_corrupted_except_the_innermost_code():
    network, ones = built(), torch.ones(50, 8)
    inner = LayerPair(network, 2, 0.5).train()
    assert not torch.equal(inner.encode(ones), inner.encode(ones))
    codes = torch.ones(50, 3)
    assert torch.equal(inner.decode(codes), inner.decode(codes))
    outer = LayerPair(network, 0, 0.5).train()
    codes = torch.ones(50, 16)
    assert not torch.equal(outer.decode(codes), outer.decode(codes))
    outer.eval()  # in use, nothing is dropped
    assert torch.equal(outer.decode(codes), outer.decode(codes))


def test_inputs_of_a_layer_are_what_the_layers_before_make_of_the_samples():
    network = built()
    inputs = LayerInputs(minibatches(), network.encoder[:2])
    expected = torch.relu(network.encoder[0](samples()))
    torch.testing.assert_close(inputs.take(np.arange(200)), expected)
    assert not inputs.take(np.arange(2)).requires_grad
    indices, batch = next(inputs.shuffled(torch.Generator().manual_seed(0)))
    torch.testing.assert_close(batch, expected[indices])


def test_a_network_of_one_layer_is_linear_both_ways():
    pair = LayerPair(built(hidden=()), 0, 0.2)
    assert not any(isinstance(part, nn.ReLU) for part in pair.modules())


def test_training_that_diverges_names_the_layer():
    with pytest.raises(TrainingError, match="pretraining layer 1"):
        pretrained(built(), scale=1e30)
