"""Steps of a model as plain values and tensors: they come back the same, damage is refused."""

import json

import numpy as np
import pytest
import torch

from kscn.data import as_source
from kscn.features import BlockMeans, Components, ScatteringMaps, Votes
from kscn.features.steps import built, described
from kscn.nn import ConvEncoder, UnitLatent, WhitenedLatent
from kscn.nn.rows import through
from kscn.runtime.moments import scaling_of

RNG = np.random.default_rng(0)
VECTORS = (RNG.standard_normal((50, 6)) * [1, 2, 3, 4, 5, 0.1] + 7).astype(np.float32)
IMAGES = RNG.integers(0, 256, (8, 1, 12, 9), dtype=np.uint8)
LABELS = torch.arange(50) % 3
SCALED = scaling_of(as_source(VECTORS), image=False)
CHAINS = {
    "scaling": ([SCALED], VECTORS),
    "columns": ([SCALED.per_column(torch.arange(6))], VECTORS),
    "scattering": ([BlockMeans((12, 9), 2), ScatteringMaps((6, 5), 1, 3)], IMAGES),
    "components": ([SCALED, Components.fit(SCALED(torch.from_numpy(VECTORS)), 4)], VECTORS),
    "whitened": (
        [Components.fit(torch.from_numpy(VECTORS), 4, whiten=True, constant=10.0)],
        VECTORS,
    ),
    "votes": ([Votes.of(torch.from_numpy(VECTORS), LABELS, 3, 7)], VECTORS),
    "encoder": (
        [
            scaling_of(as_source(IMAGES), image=True),
            ConvEncoder((1, 12, 9), 5),
            WhitenedLatent(5, 3),
            UnitLatent(),
        ],
        IMAGES,
    ),
}


def state(name):
    """A chain as a file has it, and the shape of its samples."""
    steps, samples = CHAINS[name]
    modules = torch.nn.ModuleList(steps)
    return json.loads(json.dumps(described(modules))), modules.state_dict(), samples.shape[1:]


@pytest.mark.parametrize("name", CHAINS)
def test_steps_come_back_to_the_bit(name):
    steps, samples = CHAINS[name]
    again, shape = built(*state(name))
    expected = through(steps, torch.from_numpy(samples))
    assert shape == tuple(expected.shape[1:])
    assert torch.equal(through(again, torch.from_numpy(samples)), expected)


def refused(words, *state):
    with pytest.raises((ValueError, RuntimeError, LookupError, TypeError), match=words):
        built(*state)


@pytest.mark.parametrize("name", CHAINS)
def test_tensors_of_another_form_are_refused(name):
    entries, tensors, shape = state(name)
    for key, tensor in tensors.items():
        wrong = [tensor.half(), tensor[..., None]]
        wrong += [tensor[1:]] if tensor.ndim else []
        wrong += [torch.full_like(tensor, torch.nan)] if tensor.is_floating_point() else []
        for value in wrong:
            refused(key.split(".", 1)[1], entries, {**tensors, key: value}, shape)
        refused("missing", entries, {k: v for k, v in tensors.items() if k != key}, shape)
    refused("unknown", entries, {**tensors, "0.more": torch.zeros(2)}, shape)


@pytest.mark.parametrize(
    ("name", "number", "config"),
    [
        ("components", 1, {"n_features": 7}),
        ("components", 1, {"n_components": 5}),
        ("components", 1, {"whitened": True}),
        ("scattering", 0, {"shape": [14, 9]}),
        ("scattering", 0, {"block": 0}),
        ("scattering", 0, {"block": "2"}),
        ("scattering", 1, {"J": 9}),
        ("scattering", 1, {"L": 10**6}),
        ("scattering", 1, {"shape": [14_000, 8]}),  # filters that would take gigabytes
        ("scattering", 1, {"shape": [6] * 100_000}),
        ("votes", 0, {"count": 1000}),
        ("votes", 0, {"n_clusters": 2}),
        ("votes", 0, {"n_samples": 10**9}),
        ("encoder", 1, {"latent_dim": 2**40}),
        ("encoder", 1, {"latent_dim": -1}),
        ("encoder", 1, {"shape": [1, 2**20, 2**20]}),
        ("encoder", 2, {"n_components": 2**40}),
        ("encoder", 3, {"size": 1}),
    ],
)
def test_values_that_do_not_fit_together_are_refused(name, number, config):
    entries, tensors, shape = state(name)
    entries[number]["config"] |= config
    refused(None, entries, tensors, shape)


@pytest.mark.parametrize("entries", [None, ["scaling"], [{"kind": "pickle", "config": {}}], [{}]])
def test_what_describes_no_steps_is_refused(entries):
    refused(None, entries, {}, (3,))


def test_values_that_no_step_can_work_with_are_refused():
    entries, tensors, shape = state("votes")
    refused("labels", entries, {**tensors, "0.labels": tensors["0.labels"] - 1}, shape)
    entries, tensors, shape = state("scaling")
    refused("not positive", entries, {**tensors, "0.factor": -tensors["0.factor"]}, shape)


def test_nothing_is_allocated_for_images_that_are_only_claimed():
    entries, tensors, _ = state("encoder")
    refused(None, entries, tensors, (1, 2**20, 2**20))
