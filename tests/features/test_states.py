"""What a fitted map is saved as: it comes back the same, and a damaged one is refused."""

import json

import numpy as np
import pytest
import torch

from kscn.errors import ModelFileError
from kscn.features import PCAFeatures, ScaledFeatures, ScatteringFeatures, VotedFeatures

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((50, 6)).astype(np.float32) * [1, 2, 3, 4, 5, 0.1] + 7
IMAGES = RNG.integers(0, 256, (8, 12, 9), dtype=np.uint8)
LABELS = torch.arange(50) % 3
MAPS = {
    "scaled": (ScaledFeatures(), VECTORS),
    "smaller": (ScaledFeatures(largest_side=8), IMAGES),
    "scattering": (ScatteringFeatures(J=1, L=3), IMAGES),
    "components": (PCAFeatures(4), VECTORS.astype(np.float32)),
    "whitened": (PCAFeatures(4, whiten=True, constant=10.0), VECTORS),
    "votes": (VotedFeatures.of_sample(torch.from_numpy(VECTORS), LABELS, 3, 7), VECTORS),
}


def fitted(name):
    features, samples = MAPS[name]
    return (features if name == "votes" else features.fit(samples)), samples


@pytest.mark.parametrize("name", MAPS)
def test_the_state_brings_the_features_back(name):
    features, samples = fitted(name)
    config, arrays = features.state()
    again = type(features).from_state(json.loads(json.dumps(config)), arrays)
    np.testing.assert_array_equal(again.transform(samples), features.transform(samples))
    assert again.get_params() == features.get_params()


def refused(name, **changes):
    """From a state with entries of its settings, of `params` or of its arrays replaced."""
    features, _ = fitted(name)
    config, arrays = features.state()
    for entry, value in changes.items():
        place = next((p for p in (arrays, config) if entry in p), config["params"])
        place[entry] = value
    with pytest.raises(ModelFileError, match=f"does not describe a {type(features).__name__}"):
        type(features).from_state(config, arrays)


@pytest.mark.parametrize("name", MAPS)
def test_a_state_of_another_form_is_refused(name):
    for shape in (None, 6, [], [6.0], [-6], [7], [2**62, 2**62]):
        refused(name, shape=shape)
    for params in (None, {"whitened": True}, {"J": "many"}):
        refused(name, params=params)
    for entry, array in fitted(name)[0].state()[1].items():
        wrong = [array.astype(np.float16), array[..., None]]
        wrong += [np.full_like(array, np.nan)] if array.dtype.kind == "f" else [array - 1]
        wrong += [array[:0], array[1:]] if array.ndim else [-array]
        for value in wrong:
            refused(name, **{entry: value})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("components", {"components": np.zeros((7, 6)), "explained_variance": np.ones(7)}),
        ("components", {"n_components": 5}),
        ("components", {"whiten": "yes"}),
        ("components", {"constant": -1}),
        ("scattering", {"J": 9}),
        ("scattering", {"L": 10**6}),
        ("scattering", {"shape": [14_000, 8]}),  # filters that would take gigabytes
        ("votes", {"count": 0}),
        ("votes", {"count": 1000}),
        ("votes", {"n_clusters": 2}),
        ("votes", {"n_clusters": 10**9}),
        ("votes", {"samples": np.zeros((50, 6))}),
    ],
)
def test_values_that_do_not_fit_together_are_refused(name, changes):
    refused(name, **changes)
