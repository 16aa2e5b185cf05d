"""What is added from outside the package, in a few lines each; see "To add" in CONTRIBUTING."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pytest
import torch
from kscn.runtime.checkpoint import State
from kscn.stages.losses import LOSSES, ClusterLoss, energies
from kscn.stages.run import Stage
from torch import nn

from kscn import KSCN, data
from kscn.data import Dataset, as_source
from kscn.data.files import READERS
from kscn.errors import InputError
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


def test_a_loss_is_a_class_with_a_name(planes, monkeypatch):
    class Squared(ClusterLoss):
        """The squared distance to the nearest subspace, squared: far latents count more."""

        def __call__(self, z, indices):
            nearest = energies(z, self.subspaces).amax(dim=1)
            return (z.square().sum(dim=1) - nearest).square().mean()

    def fitted(loss):
        return KSCN(2, settings={"loss": loss, "tol": 0.0}, weight=10.0, **SHORT).fit(planes[0])

    with pytest.raises(InputError, match="loss='squared' must be 'residual' or 'separation'"):
        fitted("squared")
    monkeypatch.setitem(LOSSES, "squared", Squared)
    model, usual = fitted("squared"), fitted("residual")
    assert (model.predict(planes[0]) == model.labels_).all()
    losses = [[r["subspace"] for r in m.history_ if r["stage"] == "fit"] for m in (model, usual)]
    assert losses[0] != losses[1] and min(losses[0]) > 0


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_a_stage_is_a_class_among_those_of_an_estimator(planes, tmp_path, turn):
    """Wherever it is among them, a fit that is cut off in it goes on like any other."""
    ends = []

    class Count(Stage):
        """Records the number of samples."""

        name = "count"

        def run(self, fit):
            if self.loaded is None:
                fit.record({"stage": self.name, "samples": len(fit.source)})
            fit.safe_points.reached(always=True)
            for error in ends:
                raise error

        def state_dict(self):
            return State({})

    class Counting(KSCN):
        def stages(self, source, fit):
            found = super().stages(source, fit)
            return [*found[:turn], Count(), *found[turn:]]

    usual = KSCN(2, **SHORT).fit(planes[0])
    model = Counting(2, **SHORT).fit(planes[0])
    assert (model.labels_ == usual.labels_).all()
    assert [r["samples"] for r in model.history_ if r["stage"] == "count"] == [60]
    ends.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        Counting(2, checkpoint_dir=tmp_path, **SHORT).fit(planes[0])
    ends.clear()
    again = Counting(2, checkpoint_dir=tmp_path, **SHORT).fit(planes[0])
    assert (again.labels_ == usual.labels_).all()
    # How many rounds a search takes may differ by one with the last digits of products, which
    # depend on where in memory the samples lie.
    passed = [[name for name, _ in groupby(r["stage"] for r in m.history_)] for m in (again, model)]
    assert passed[0] == passed[1]
