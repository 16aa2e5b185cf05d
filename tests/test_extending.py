"""What is added from outside the package, in a few lines each; see "To add" in CONTRIBUTING."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from kscn import KSCN, data
from kscn.data import Dataset, as_source
from kscn.data.files import READERS
from kscn.errors import InputError
from kscn.training.losses import LOSSES, energies
from kscn_paper.rivals.base import Rival


@pytest.fixture
def planes():
    """60 samples near two planes in four dimensions, and their planes."""
    samples, labels, _ = data.make_union_of_subspaces(60, 2, 4, 2, noise=0.01, random_state=0)
    return samples, labels


def test_a_rival_is_a_subclass_with_one_method(planes):
    @dataclass(eq=False, repr=False)
    class BySign(Rival):
        """Two clusters, by the sign of the first number."""

        def _fit(self, source):
            self.labels_ = (np.asarray(source)[:, 0] > 0).astype(int)

    model = BySign(2, random_state=0).fit(planes[0])
    assert (model.labels_ == (planes[0][:, 0] > 0)).all()
    assert model.get_params()["n_clusters"] == 2 and model.random_state_ == 0


def test_a_file_format_is_a_suffix_and_a_function(planes, tmp_path, monkeypatch):
    def open_raw(path):
        values = np.fromfile(path, dtype=np.float32).reshape(-1, 4)
        return Dataset(as_source(values, str(path)), None, path.stem)

    monkeypatch.setitem(READERS, ".raw", open_raw)
    planes[0].astype(np.float32).tofile(tmp_path / "planes.raw")
    loaded = data.load(tmp_path / "planes.raw")
    assert loaded.name == "planes" and (loaded.samples[:] == planes[0]).all()


def test_an_autoencoder_is_a_module_with_encode_and_decode(planes):
    class Turn(nn.Module):
        """A linear map and its transpose."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.eye(4))

        def encode(self, samples):
            return samples @ self.weight

        def decode(self, codes):
            return codes @ self.weight.T

    model = KSCN(2, autoencoder=Turn(), subspace_dim=2, pretrain_epochs=1, epochs=1, random_state=0)
    model.fit(planes[0])
    assert isinstance(model.autoencoder_, Turn)
    assert (model.predict(planes[0]) == model.labels_).all()


SHORT = {"subspace_dim": 2, "pretrain_epochs": 1, "epochs": 2, "random_state": 0}


def test_a_loss_is_a_function_with_a_name(planes, monkeypatch):
    def squared(z, subspaces, targets, samples, options):
        """The squared distance to the nearest subspace, squared: far latents count more."""
        nearest = energies(z, subspaces).amax(dim=1)
        return (z.square().sum(dim=1) - nearest).square().sum() / samples

    def fitted(loss):
        return KSCN(2, loss=loss, tol=0.0, weight=10.0, **SHORT).fit(planes[0])

    with pytest.raises(InputError, match="loss='squared' must be 'auto', 'residual'"):
        fitted("squared")
    monkeypatch.setitem(LOSSES, "squared", squared)
    model, usual = fitted("squared"), fitted("residual")
    assert (model.predict(planes[0]) == model.labels_).all()
    losses = [[r["subspace"] for r in m.history_ if r["stage"] == "fit"] for m in (model, usual)]
    assert losses[0] != losses[1] and min(losses[0]) > 0
