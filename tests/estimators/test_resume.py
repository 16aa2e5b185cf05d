"""A fit that was cut off goes on from its last state to the very result of one that was not."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from kscn import KSCN, KSCNPlus, KSubspaces, data, load_model
from kscn.errors import ModelFileError
from kscn.estimators.defaults import OPEN
from kscn.training.driver import CheckpointWarning, Run


@pytest.fixture(autouse=True)
def every_state_is_written(monkeypatch):
    """Also where a real fit would find it too early for the next one."""
    save = Run._save
    monkeypatch.setattr(Run, "_save", lambda run, *args, **_: save(run, *args[:3], always=True))


@pytest.fixture(scope="module")
def digits():
    return np.asarray(data.load("digits").samples)[:160]


@pytest.fixture(scope="module")
def cloud():
    """Subspaces in so much noise that k-subspaces needs many iterations."""
    return data.make_union_of_subspaces(1500, 4, 12, 2, noise=0.6, random_state=0)[0]


class Killed(BaseException):
    """What a callback raises in place of a kill."""


class Cut:
    """A callback that ends the fit for good at the nth record of a stage."""

    def __init__(self, stage, number, error=Killed):
        self.stage, self.left, self.error = stage, number, error

    def __call__(self, model, record):
        self.left -= record["stage"] == self.stage
        if self.left == 0:
            raise self.error


class Dropping(nn.Module):
    """A network that draws from torch's own generator while it trains."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.down = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 16))
        self.up = nn.Linear(16, 64)

    def encode(self, images):
        return self.down(images)

    def decode(self, codes):
        return self.up(codes).reshape(-1, 1, 8, 8)


def deep(**settings):
    defaults = {
        "subspace_dim": 3,
        "autoencoder_params": {"channels": [8, 6], "kernels": [3, 3], "batch_norm": True},
        "pretrain_epochs": 2,
        "epochs": 3,
        "tol": 0.0,
        "n_init": 1,
        "batch_size": 32,
        "augment": "affine",
        "random_state": 5,
    }
    return KSCN(5, **OPEN | defaults | settings)


def preset(**settings):
    """The settings of the preset, in steps of all samples."""
    shared = {"pretrain_epochs": 2, "epochs": 3, "n_init": 1, "batch_size": 256}
    return KSCN(3, random_state=1, **shared | settings)


def plus(**settings):
    """Few runs, and a start that is held for one epoch of three."""
    defaults = {"starts": 1, "epochs": 3, "batch_size": 32, "random_state": 5, "refine": True}
    return KSCNPlus(5, **defaults | settings)


def linear(**settings):
    # A start that is far from the end: from better ones a fit is over before it is cut.
    start = np.random.default_rng(1).integers(4, size=1500)
    shared = {"subspace_dim": 2, "tol": 0.0, "init": start, "max_iter": 8, "random_state": 1}
    return KSubspaces(4, **shared | settings)


TUNED = {
    "latent": "whitened",
    "latent_dim": 12,
    "loss": "separation",
    "balance": 0.5,
    "weight": 5.0,
    "schedule": "one-cycle",
    "init_dim": 4,
}
FITS = {
    "paper": (deep, {}),
    "dropout": (deep, {"autoencoder": Dropping(), "autoencoder_params": None}),
    "tuned": (deep, TUNED | {"init": "scattering"}),
    "preset": (preset, {}),
    "grassmann": (deep, TUNED | {"update": "grassmann", "trim": 0.0}),
    "linear": (linear, {}),
    "linear, trim": (linear, {"trim": 0.1}),
    "linear, affine": (linear, {"affine": True}),
    "linear, dimensions": (linear, {"subspace_dim": [1, 2, 2, 3]}),
    "linear, searched": (linear, {"init": "auto", "n_init": 1, "tol": 1e-4}),
    "refined": (plus, {}),
    "chosen": (plus, {"refine": False}),
}


def same(one, other):
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_allclose(one.subspaces_, other.subspaces_, atol=1e-6)
    assert one.inertia_ == pytest.approx(other.inertia_, rel=1e-9)
    assert one.noise_variance_ == pytest.approx(other.noise_variance_, rel=1e-9)
    assert (one.n_iter_, one.random_state_) == (other.n_iter_, other.random_state_)
    assert len(one.history_) == len(other.history_)
    for a, b in zip(one.history_, other.history_, strict=True):
        assert a.keys() == b.keys()
        for name in a.keys() - {"seconds"}:
            close = isinstance(a[name], float)
            assert a[name] == (pytest.approx(b[name], rel=1e-9) if close else b[name])
    for name in ("settings_", "spectra_", "start_labels_", "confidence_", "chosen_", "tried_"):
        if hasattr(other, name):
            a, b = getattr(one, name), getattr(other, name)
            if isinstance(b, np.ndarray):
                np.testing.assert_allclose(a, b, atol=1e-6 * max(1, np.abs(b).max()))
            elif name != "settings_" or "autoencoder" not in str(a):
                assert a == b


@pytest.mark.parametrize("name", FITS)
def test_a_fit_goes_on_from_wherever_it_was_killed(digits, cloud, tmp_path, name):
    make, settings = FITS[name]
    X = cloud if make is linear else digits
    going, copies = tmp_path / "going", []

    def copy(_, record):
        """What a kill at this point would leave."""
        newest = max((path.name for path in going.iterdir()), default="")
        if f"before {newest}" not in [one.name for one in copies]:
            copies.append(tmp_path / f"before {newest}")
            shutil.copytree(going, copies[-1])

    whole = make(**settings, checkpoint_dir=going, callbacks=[copy]).fit(X)
    same(make(**settings).fit(X), whole)  # a directory makes no difference
    assert copies
    heard = []
    for place in [*copies, going]:
        heard.append(0)

        def count(_, record):
            heard[-1] += 1

        same(make(**settings, checkpoint_dir=place, callbacks=[count]).fit(X), whole)
    assert heard == sorted(heard, reverse=True)
    assert heard[0] <= len(whole.history_)
    # All that a finished fit may do again is the iteration that found nothing left to do.
    assert heard[-1] <= (1 if make is linear else 0)


@pytest.mark.parametrize("stage", ["pretrain", "fit"])
def test_an_interrupted_fit_leaves_the_estimator_as_it_was(digits, tmp_path, stage):
    cut = Cut(stage, 2, KeyboardInterrupt)
    model = deep(checkpoint_dir=tmp_path, callbacks=[cut])
    params = model.get_params()
    with pytest.raises(KeyboardInterrupt):
        model.fit(digits)
    assert set(vars(model)) == set(params)
    whole = deep().fit(digits)
    same(deep(checkpoint_dir=tmp_path).fit(digits), whole)
    before = dict(vars(whole))
    whole.set_params(callbacks=[Cut(stage, 1, KeyboardInterrupt)])
    with pytest.raises(KeyboardInterrupt):
        whole.fit(digits[:80])
    assert {name: one for name, one in vars(whole).items() if name != "callbacks"} == {
        name: one for name, one in before.items() if name != "callbacks"
    }


def test_a_stage_that_a_callback_ended_stays_ended(digits, tmp_path):
    """As long as the callback says so: it is asked again."""

    def enough(_, record):
        return record["stage"] == "pretrain"

    whole = deep(callbacks=[enough]).fit(digits)
    assert [record["stage"] for record in whole.history_].count("pretrain") == 1
    with pytest.raises(Killed):
        deep(checkpoint_dir=tmp_path, callbacks=[enough, Cut("fit", 2)]).fit(digits)
    same(deep(checkpoint_dir=tmp_path, callbacks=[enough]).fit(digits), whole)


def test_a_drawn_seed_is_part_of_the_state(digits, tmp_path):
    settings = {"random_state": None, "checkpoint_dir": tmp_path}
    with pytest.raises(Killed):
        deep(**settings, callbacks=[Cut("fit", 2)]).fit(digits)
    again = deep(**settings).fit(digits)
    same(again, deep(random_state=again.random_state_).fit(digits))


def test_settings_of_a_resumed_fit_are_those_that_were_used(tmp_path):
    """Codes of samples in a plane carry two directions, and so the latent has two."""
    plane = data.make_union_of_subspaces(120, 1, 12, 2, random_state=0)[0]
    settings = {"latent": "whitened", "subspace_dim": 1, "preset": "tuned", "random_state": 0}
    settings |= {"pretrain_epochs": 0, "epochs": 2, "n_init": 1, "autoencoder": Flat()}

    def made(**more):
        return KSCN(2, **settings | more)

    whole = made().fit(plane)
    assert whole.settings_["latent_dim"] == whole.subspaces_.shape[1] == 2
    with pytest.raises(Killed):
        made(checkpoint_dir=tmp_path, callbacks=[Cut("fit", 2)]).fit(plane)
    assert made(checkpoint_dir=tmp_path).fit(plane).settings_["latent_dim"] == 2


class Flat(nn.Module):
    """Codes are the samples turned."""

    def __init__(self):
        super().__init__()
        self.turn = nn.Linear(12, 12, bias=False)
        nn.init.orthogonal_(self.turn.weight)

    def encode(self, x):
        return self.turn(x)

    def decode(self, z):
        return z @ self.turn.weight


def test_a_damaged_state_falls_back_on_the_one_before(digits, tmp_path):
    with pytest.raises(Killed):
        deep(checkpoint_dir=tmp_path, callbacks=[Cut("fit", 3)]).fit(digits)
    states = sorted(tmp_path.glob("state-*"))
    assert len(states) == 2
    tensors = states[-1] / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with pytest.warns(CheckpointWarning, match="cut off"):
        again = deep(checkpoint_dir=tmp_path).fit(digits)
    same(again, deep().fit(digits))


def test_a_fit_with_other_settings_or_data_is_refused(digits, cloud, tmp_path):
    deep(checkpoint_dir=tmp_path).fit(digits)
    with pytest.raises(ModelFileError, match=r"weight was 0\.08 there and is 1\.0 now"):
        deep(checkpoint_dir=tmp_path, weight=1.0).fit(digits)
    with pytest.raises(ModelFileError, match="samples was 160 there and is 150 now"):
        deep(checkpoint_dir=tmp_path).fit(digits[:150])
    with pytest.raises(ModelFileError, match="another fit: first samples"):
        deep(checkpoint_dir=tmp_path).fit(digits[::-1])
    weighted = linear(checkpoint_dir=tmp_path / "linear", max_iter=2)
    weighted.fit(cloud, sample_weight=np.linspace(0.5, 2, len(cloud)))
    with pytest.raises(ModelFileError, match="sample_weight"):
        weighted.fit(cloud)


def test_a_full_disk_costs_the_state_but_not_the_fit(digits, tmp_path):
    def fill(_, record):
        """Nothing can be written to where a file is."""
        if tmp_path.joinpath("states").is_dir():
            shutil.rmtree(tmp_path / "states")
            (tmp_path / "states").write_text("")

    with pytest.warns(CheckpointWarning, match="no checkpoint"):
        model = deep(checkpoint_dir=tmp_path / "states", callbacks=[fill]).fit(digits)
    same(model, deep().fit(digits))


def test_the_model_file_does_not_remember_the_directory(digits, cloud, tmp_path):
    fits = {"deep": (deep(), digits), "linear": (linear(), cloud)}
    fits["plus"] = plus(refine=False), digits
    for name, (model, X) in fits.items():
        model.set_params(checkpoint_dir=tmp_path / "states" / name).fit(X).save(tmp_path / name)
        assert load_model(tmp_path / name).checkpoint_dir is None
