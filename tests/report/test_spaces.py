"""Subspaces lead back to samples: through pixels, codes and whitened latents."""

import numpy as np
import pytest
import torch
from torch import nn

from kscn import KSCN, KSCNPlus, KSubspaces
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
        return KSCN.from_settings(
            3,
            subspace_dim=2,
            autoencoder=Gain(),
            latent=latent,
            latent_dim=5,
            n_init=1,
            pretrain_epochs=1,
            epochs=1,
            learning_rate=1e-5,
            random_state=0,
        ).fit(planes[0])

    return fit


def filled(space, samples, labels, block=50):
    for first in range(0, len(samples), block):
        some = slice(first, first + block)
        labels_of_some = torch.from_numpy(np.asarray(labels[some], dtype=np.int64))
        space.add(space.points(samples[some]), labels_of_some)
    return space


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
    samples, labels = planes[0].astype(np.float64), linear.labels_
    space = filled(SubspaceSpace(linear, (8,)), samples, labels)
    for i in range(3):
        basis = linear.subspaces_[i].astype(np.float64)
        inside = samples[labels == i] @ basis @ basis.T  # the members on their subspace
        values, vectors = np.linalg.eigh(np.cov(inside.T, bias=True))
        axes, spread = space.directions(i)
        assert spread.numpy() == pytest.approx(np.sqrt(values[::-1][:2]), rel=1e-6)
        assert np.abs((axes.numpy() * vectors[:, ::-1][:, :2]).sum(axis=0)) == pytest.approx(
            [1, 1], abs=1e-6
        )


def test_steps_from_the_mean_stay_samples(linear, planes):
    space = filled(SubspaceSpace(linear, (2, 4)), planes[0].reshape(-1, 2, 4), linear.labels_)
    step = torch.arange(8, dtype=torch.float64)[None]
    members = planes[0][linear.labels_ == 1]
    mean = members.mean(axis=0, dtype=np.float64)
    found = space.samples(1, torch.cat([0 * step, step]), members)
    assert found.shape == (2, 2, 4)
    assert found.reshape(2, 8) == pytest.approx(np.stack([mean, mean + np.arange(8)]), abs=1e-6)


def test_dimensions_may_differ(planes):
    model = KSubspaces(3, subspace_dim=[1, 2, 3], random_state=0).fit(planes[0])
    space = filled(SubspaceSpace(model, (8,)), planes[0], model.labels_)
    assert [space.directions(i)[0].shape[1] for i in range(3)] == model.subspace_dims_.tolist()


def test_codes_of_the_latent_itself_are_decoded(deep, planes):
    model = deep("identity")
    space = EncodedSpace(model, (8,))
    step = 0.3 * torch.ones(1, 8, dtype=torch.float64)
    members = planes[0][model.labels_ == 0]
    mean = torch.from_numpy(model.transform(members).mean(axis=0))
    with torch.no_grad():
        expected = model.scaling_.inverse(model.autoencoder_.decode(mean + step.float()))
    assert space.samples(0, step, members) == pytest.approx(expected.numpy(), abs=1e-5)


def test_whitening_is_inverted(deep, planes):
    model = deep("whitened")
    space = filled(EncodedSpace(model, (8,)), planes[0], model.labels_)
    axes, spread = space.directions(0)
    steps = torch.tensor([[0.0], [1.0], [-2.0]], dtype=torch.float64) * spread[0] * axes[:, 0]
    samples = torch.from_numpy(space.samples(0, steps, planes[0][model.labels_ == 0]))
    with torch.no_grad():  # what the decoded samples are before they are brought to unit norm
        code = model.autoencoder_.encode(model.scaling_(samples))
        reached = model.latent_.linear(code).double()
        members = model.autoencoder_.encode(model.scaling_(torch.from_numpy(planes[0])))
        lengths = model.latent_.linear(members[model.labels_ == 0]).norm(dim=1).double()
    assert (reached - reached[0]).numpy() == pytest.approx(
        (lengths.mean() * steps).numpy(), abs=1e-4
    )


def test_spectra_of_latents_are_those_of_their_scatter(deep, planes):
    model = deep("whitened")
    space = filled(EncodedSpace(model, (8,)), planes[0], model.labels_)
    z = model.transform(planes[0]).astype(np.float64)
    for i in range(3):
        members = z[model.labels_ == i]
        expected = np.linalg.svd(members, compute_uv=False) ** 2
        assert space.spectra[i] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_without_a_decoder_the_points_are_what_transform_gives(refined, bars):
    space = filled(EncodedSpace(refined, (12, 12)), bars, refined.labels_)
    z = refined.transform(bars).astype(np.float64)
    assert space.points(bars).numpy() == pytest.approx(z)
    for i in range(2):
        members = z[refined.labels_ == i]
        expected = np.linalg.svd(members, compute_uv=False) ** 2
        found = space.spectra[i][: len(expected)]
        assert found == pytest.approx(expected[: len(found)], rel=1e-4, abs=1e-6)
        # Along the directions, members are centred and have the spread that was promised.
        places = space.coordinates(i, torch.from_numpy(members)).numpy()
        spread = space.directions(i)[1].numpy()
        assert places.mean(axis=0) == pytest.approx(0, abs=1e-6)
        assert places.std(axis=0)[spread > 1e-6] == pytest.approx(1, abs=1e-6)
