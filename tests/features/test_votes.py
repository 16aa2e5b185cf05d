"""The nearest of a sample vote for its clusters."""

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier

from kscn.features import Votes
from kscn.nn.rows import through


def groups(n=120, k=3, d=5, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    z = rng.normal(0, 1, (n, d)) + 2 * rng.normal(0, 1, (k, d))[y]
    return torch.from_numpy(z).float(), torch.from_numpy(y)


def shares(votes, z):
    return (through([votes], z) ** 2).numpy()


def voted(count=7, **kind):
    z, y = groups(**kind)
    return Votes.of(z, y, int(y.max()) + 1, count), z, y


def test_features_have_unit_length_and_new_samples_get_the_label_of_their_nearest():
    features, z, y = voted()
    new, _ = groups(seed=1)
    found = shares(features, new)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)

    def weights(apart):
        return 1 / (apart**2 + 1e-4 * apart.max(axis=1, keepdims=True) ** 2)

    oracle = KNeighborsClassifier(7, weights=weights, algorithm="brute").fit(z, y)
    np.testing.assert_allclose(found, oracle.predict_proba(new.numpy()), atol=1e-4)


def test_members_of_the_sample_keep_their_label():
    z, y = groups()
    mixed = torch.from_numpy(np.random.default_rng(0).integers(0, 3, len(y)))
    features = Votes.of(z, mixed, 3, 10)
    assert (shares(features, z).argmax(axis=1) == mixed.numpy()).all()


def test_scale_does_not_matter_and_equal_samples_share_their_votes():
    features, z, y = voted()
    new, _ = groups(seed=1)
    for factor in (1e-8, 1e8):
        scaled = Votes.of(z * factor, y, 3, 7)
        np.testing.assert_allclose(shares(scaled, new * factor), shares(features, new), atol=1e-3)
    same = Votes.of(torch.ones(4, 2), torch.tensor([0, 1, 1, 1]), 2, 4)
    np.testing.assert_allclose(shares(same, torch.ones(1, 2)), [[0.25, 0.75]], rtol=1e-5)
