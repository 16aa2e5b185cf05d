"""Subspaces lead back to samples: through pixels, codes and whitened latents."""

import numpy as np
import pytest
import torch
from torch import nn

from kscn import KSCN, KSCNPlus
from kscn.report.spaces import EncodedSpace, SubspaceSpace, space_of


class Gain(nn.Module):
    """An autoencoder that hardly does anything, so that what it does is known."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def encode(self, samples):
        return samples * self.gain

    def decode(self, latents):
        return latents / self.gain


@pytest.fixture(scope="module")
def deep(planes):
    """deep(latent) -> a KSCN on the planes whose code is nearly the scaled sample itself."""

    def fit(latent):
        return KSCN(
            3, subspace_dim=2, autoencoder=Gain(), latent=latent, latent_dim=5, n_init=1,
            pretrain_epochs=1, epochs=1, learning_rate=1e-5, random_state=0,
        ).fit(planes[0])  # fmt: skip

    return fit


def test_the_space_follows_the_model(linear, deep, refined, planes):
    features = KSCNPlus(3, starts=1, random_state=0).fit(planes[0])
    for model, shape, kind, name, decodes in (
        (linear, (8,), SubspaceSpace, "samples", True),
        (deep("identity"), (8,), EncodedSpace, "latents", True),
        (refined, (12, 12), EncodedSpace, "latents", False),
        (features, (8,), EncodedSpace, "features", False),
    ):
        space = space_of(model, shape)
        assert (type(space), space.name, space.decodes) == (kind, name, decodes)


def test_directions_are_the_principal_ones_of_the_members(linear, planes):
    space = space_of(linear, (8,))
    for i in range(3):
        basis = linear.subspaces_[i].astype(np.float64)
        inside = planes[0][linear.labels_ == i] @ basis @ basis.T  # the members on their subspace
        values, vectors = np.linalg.eigh(np.cov(inside.T, bias=True))
        axes, spread = space.directions(i, space.points(planes[0][linear.labels_ == i]))
        assert spread.numpy() == pytest.approx(np.sqrt(values[::-1][:2]), rel=1e-6)
        agreement = np.abs((axes.numpy() * vectors[:, ::-1][:, :2]).sum(axis=0))
        assert agreement == pytest.approx([1, 1], abs=1e-6)


def test_steps_from_the_mean_stay_samples(linear, planes):
    members = planes[0][linear.labels_ == 1]
    step = torch.arange(8, dtype=torch.float64)[None]
    found = space_of(linear, (8,)).samples(torch.cat([0 * step, step]), members)
    mean = members.mean(axis=0, dtype=np.float64)
    assert found == pytest.approx(np.stack([mean, mean + np.arange(8)]), abs=1e-6)


def test_codes_of_the_latent_itself_are_decoded(deep, planes):
    model = deep("identity")
    step = 0.3 * torch.ones(1, 8, dtype=torch.float64)
    members = planes[0][model.labels_ == 0]
    mean = torch.from_numpy(model.transform(members).mean(axis=0))
    with torch.no_grad():
        expected = model.scaling_.inverse(model.autoencoder_.decode(mean + step.float()))
    found = EncodedSpace(model, (8,)).samples(step, members)
    assert found == pytest.approx(expected.numpy(), abs=1e-5)


def test_whitening_is_inverted(deep, planes):
    model = deep("whitened")
    space = space_of(model, (8,))
    members = planes[0][model.labels_ == 0]
    axes, spread = space.directions(0, space.points(members))
    steps = torch.tensor([[0.0], [1.0], [-2.0]], dtype=torch.float64) * spread[0] * axes[:, 0]
    samples = torch.from_numpy(space.samples(steps, members))
    with torch.no_grad():  # what the decoded samples are before they are brought to unit norm
        code = model.autoencoder_.encode(model.scaling_(samples))
        reached = model.latent_.linear(code).double()
        codes = model.autoencoder_.encode(model.scaling_(torch.from_numpy(members)))
        lengths = model.latent_.linear(codes).norm(dim=1).double()
    expected = (lengths.mean() * steps).numpy()
    assert (reached - reached[0]).numpy() == pytest.approx(expected, abs=1e-4)
