"""A fit that was cut off goes on from its checkpoint to the very result of one that was not."""

import functools
from contextlib import contextmanager

import numpy as np
import pytest
from torch import nn

from kscn import KSCN, KSCNPlus, KSubspaces, data, load_model
from kscn.errors import ModelFileError
from kscn.estimators.defaults import OPEN
from kscn.runtime import checkpoint


@pytest.fixture(autouse=True)
def every_state_is_written(monkeypatch):
    """Also where a real fit would find it too early for the next one."""
    reached = checkpoint.Checkpoints.reached
    monkeypatch.setattr(
        checkpoint.Checkpoints, "reached", lambda self, always=False: reached(self, always=True)
    )
    yield
    checkpoint.STOP.withdraw()


@pytest.fixture(scope="module")
def digits():
    return np.asarray(data.load("digits").samples)[:200]


@pytest.fixture(scope="module")
def cloud():
    """Subspaces in so much noise that k-subspaces needs many iterations."""
    return data.make_union_of_subspaces(1500, 4, 12, 2, noise=0.6, random_state=0)[0]


class CutError(Exception):
    """What a callback raises in place of a kill."""


class Cut:
    """A callback that ends the fit for good at the nth record of a stage."""

    def __init__(self, stage, number):
        self.stage, self.left = stage, number

    def __call__(self, model, record):
        if record["stage"] == self.stage:
            self.left -= 1
            if self.left == 0:
                raise CutError


def deep(**settings):
    defaults = {
        "subspace_dim": 3,
        "autoencoder_params": {"channels": [8, 6], "kernels": [3, 3], "batch_norm": True},
        "pretrain_epochs": 3,
        "epochs": 4,
        "tol": 0.0,
        "n_init": 1,
        "batch_size": 32,
        "augment": "affine",
        "random_state": 5,
    }
    return KSCN.from_settings(5, **OPEN | defaults | settings)


@contextmanager
def stopped(when, monkeypatch, directory):
    """A fit inside is asked to stop at the step where `when(states)` is true, and does."""
    due = checkpoint.Checkpoints.due

    def counting(self):
        if when(self):
            checkpoint.STOP.make()
        return due(self)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.Checkpoints, "due", counting)
        with pytest.raises(checkpoint.StoppedError, match=str(directory)):
            yield
    checkpoint.STOP.withdraw()


def plus(**settings):
    """Few runs, and a start that is held for two epochs of three."""
    defaults = {
        "starts": 1,
        "epochs": 3,
        "batch_size": 32,
        "random_state": 5,
        "refine": True,
    }
    return KSCNPlus(5, **defaults | settings)


TUNED = {
    "latent": "whitened",
    "latent_dim": 12,
    "loss": "separation",
    "balance": 0.5,
    "weight": 5.0,
    "schedule": "one-cycle",
    "init_dim": 4,
}
GRASSMANN = {"update": "grassmann", "trim": 0.0}
VARIANTS = {
    "paper": {},
    "tuned": TUNED | {"init": "scattering"},
    "grassmann": TUNED | GRASSMANN,
}


@pytest.fixture(scope="module")
def uncut(digits):
    """The fit of a variant that nothing happened to, made once."""

    @functools.cache
    def fitted(variant, **more):
        return deep(**VARIANTS[variant], **more).fit(digits)

    return fitted


class Dropping(nn.Module):
    """A network that draws from torch's own generator while it trains."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 16))
        self.up = nn.Linear(16, 64)

    def encode(self, images):
        return self.down(images)

    def decode(self, codes):
        return self.up(codes).reshape(-1, 1, 8, 8)


DROPPING = Dropping()


def same(one, other):
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.subspaces_, other.subspaces_)
    # How long it took, and how much of the linear start could be skipped, may differ.
    free = {"seconds", "update_seconds"}
    assert len(one.history_) == len(other.history_)
    for a, b in zip(one.history_, other.history_, strict=True):
        assert a.keys() == b.keys()
        for name in a.keys() - free:
            close = isinstance(a[name], float)
            assert a[name] == (pytest.approx(b[name], rel=1e-9) if close else b[name])
    assert one.n_iter_ == other.n_iter_


# --- KSCN ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("where", [("pretrain", 2), ("start", 2), ("fit", 1), ("fit", 3)])
def test_a_deep_fit_goes_on_to_the_same_result(digits, uncut, tmp_path, variant, where):
    settings, whole = VARIANTS[variant], uncut(variant)
    with pytest.raises(CutError):
        deep(**settings, checkpoint_dir=tmp_path, callbacks=[Cut(*where)]).fit(digits)
    stages = []
    again = deep(
        **settings, checkpoint_dir=tmp_path, callbacks=[lambda _, r: stages.append(r["stage"])]
    ).fit(digits)
    same(again, whole)
    assert len(stages) < len(whole.history_)  # it did not begin anew


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("stage", "step"), [("pretrain", 9), ("alternate", 17)])
def test_a_stop_in_the_middle_of_an_epoch_loses_nothing(
    digits, uncut, tmp_path, monkeypatch, variant, stage, step
):
    network = {"autoencoder": DROPPING, "autoencoder_params": None}
    settings, whole = VARIANTS[variant] | network, uncut(variant, **network)
    steps = {}

    def there(states):
        now = states.snapshot.__self__.stage.name
        steps[now] = steps.get(now, 0) + 1
        return now == stage and steps[stage] == step

    with stopped(there, monkeypatch, tmp_path):
        deep(**settings, checkpoint_dir=tmp_path).fit(digits)
    record = {"pretrain": "pretrain", "alternate": "fit"}[stage]
    with pytest.raises(CutError):  # killed again before the next state
        deep(**settings, checkpoint_dir=tmp_path, callbacks=[Cut(record, 1)]).fit(digits)
    again = deep(**settings, checkpoint_dir=tmp_path).fit(digits)
    same(again, whole)


def test_a_finished_fit_is_not_fitted_again(digits, tmp_path):
    model = deep(checkpoint_dir=tmp_path).fit(digits)
    heard = []
    again = deep(checkpoint_dir=tmp_path, callbacks=[lambda *r: heard.append(r)]).fit(digits)
    same(again, model)
    assert heard == []


def test_a_drawn_seed_is_part_of_the_state(digits, tmp_path):
    with pytest.raises(CutError):
        deep(random_state=None, checkpoint_dir=tmp_path, callbacks=[Cut("fit", 2)]).fit(digits)
    again = deep(random_state=None, checkpoint_dir=tmp_path).fit(digits)
    same(again, deep(random_state=again.random_state_).fit(digits))


def test_a_damaged_checkpoint_falls_back_on_the_one_before(digits, uncut, tmp_path):
    whole = uncut("paper")
    with pytest.raises(CutError):
        deep(checkpoint_dir=tmp_path, callbacks=[Cut("fit", 4)]).fit(digits)
    states = sorted(tmp_path.glob("state-*"))
    assert len(states) == 2
    tensors = states[-1] / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with pytest.warns(checkpoint.CheckpointWarning, match="cut off"):
        again = deep(checkpoint_dir=tmp_path).fit(digits)
    same(again, whole)


def test_a_fit_with_other_settings_or_data_is_refused(digits, tmp_path):
    deep(checkpoint_dir=tmp_path).fit(digits)
    with pytest.raises(ModelFileError, match=r"weight was 0\.08 there and is 1\.0 now"):
        deep(checkpoint_dir=tmp_path, weight=1.0).fit(digits)
    with pytest.raises(ModelFileError, match="samples was 200 there and is 150 now"):
        deep(checkpoint_dir=tmp_path).fit(digits[:150])
    with pytest.raises(ModelFileError, match="another fit: first samples"):
        deep(checkpoint_dir=tmp_path).fit(digits[::-1])


def test_a_directory_that_cannot_be_made_is_refused_before_the_fit(digits, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="cannot be used"):
        deep(checkpoint_dir=tmp_path / "file" / "below").fit(digits)


def test_a_full_disk_costs_the_checkpoint_but_not_the_fit(digits, uncut, tmp_path, monkeypatch):
    def full(*args):
        raise ModelFileError("cannot write: No space left on device.")

    monkeypatch.setattr(checkpoint, "write_model", full)
    with pytest.warns(checkpoint.CheckpointWarning, match="No space left"):
        model = deep(checkpoint_dir=tmp_path).fit(digits)
    same(model, uncut("paper"))


def test_the_model_file_does_not_remember_the_directory(digits, tmp_path):
    deep(checkpoint_dir=tmp_path / "c").fit(digits).save(tmp_path / "deep")
    linear = KSubspaces(3, subspace_dim=2, n_init=1, checkpoint_dir=tmp_path / "k")
    linear.fit(digits).save(tmp_path / "linear")
    plus(checkpoint_dir=tmp_path / "p", refine=False).fit(digits[:100]).save(tmp_path / "plus")
    for name in ("deep", "linear", "plus"):
        assert load_model(tmp_path / name).checkpoint_dir is None


# --- KSCNPlus -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few(digits):
    """Five mini-batches."""
    return digits[:160]


@pytest.fixture(scope="module")
def refined(few):
    """The fit that nothing happened to."""
    return plus().fit(few)


def same_refined(one, other):
    same(one, other)
    np.testing.assert_array_equal(one.start_labels_, other.start_labels_)
    assert (one.confidence_, one.chosen_) == (other.confidence_, other.chosen_)
    assert one.tried_ == other.tried_
    for a, b in zip(
        one.encoder_.state_dict().values(), other.encoder_.state_dict().values(), strict=True
    ):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("where", [("search", 2), ("fit", 1), ("fit", 2)])
def test_a_refined_fit_goes_on_to_the_same_result(few, refined, tmp_path, where):
    with pytest.raises(CutError):
        plus(checkpoint_dir=tmp_path, callbacks=[Cut(*where)]).fit(few)
    heard = []
    again = plus(checkpoint_dir=tmp_path, callbacks=[lambda _, r: heard.append(r["stage"])])
    same_refined(again.fit(few), refined)
    assert again.features_.transform(few[:9]).shape == refined.features_.transform(few[:9]).shape
    if where[0] == "fit":
        assert set(heard) == {"fit"}  # no second search


@pytest.mark.parametrize("step", [3, 13])  # in the epoch that holds the start, and the last
def test_a_stop_within_an_epoch_of_the_refinement_loses_nothing(
    few, refined, tmp_path, monkeypatch, step
):
    left = step

    def there(states):
        nonlocal left
        left -= states.snapshot.__self__.stage.name == "refine"
        return left == 0

    with stopped(there, monkeypatch, tmp_path):
        plus(checkpoint_dir=tmp_path).fit(few)
    same_refined(plus(checkpoint_dir=tmp_path).fit(few), refined)


def test_a_stop_in_the_search_is_heard_at_the_next_run(few, tmp_path):
    heard = []

    def stop(_, record):
        heard.append(record)
        checkpoint.STOP.make()

    with pytest.raises(checkpoint.StoppedError, match=str(tmp_path)):
        plus(checkpoint_dir=tmp_path, callbacks=[stop]).fit(few)
    assert len(heard) == 1


@pytest.mark.parametrize("refine", [True, False])
def test_a_finished_refined_fit_is_not_fitted_again(few, tmp_path, refine):
    """Nor one that a callback has ended."""
    enough = [lambda _, record: record["stage"] == "fit"]
    model = plus(checkpoint_dir=tmp_path, refine=refine, callbacks=enough).fit(few)
    for _ in range(2):
        heard = []
        again = plus(checkpoint_dir=tmp_path, refine=refine, callbacks=[heard.append]).fit(few)
        same(again, model)
        assert heard == []
        np.testing.assert_array_equal(again.predict(few), model.labels_)


def test_a_refined_fit_with_other_settings_or_data_is_refused(few, tmp_path):
    plus(checkpoint_dir=tmp_path, refine=False).fit(few)
    with pytest.raises(ModelFileError, match="starts was 1 there and is 4 now"):
        plus(checkpoint_dir=tmp_path, refine=False, starts=4).fit(few)
    with pytest.raises(ModelFileError, match="samples was 160 there and is 150 now"):
        plus(checkpoint_dir=tmp_path, refine=False).fit(few[:150])


def test_a_drawn_seed_is_part_of_the_state_of_a_refined_fit(few, tmp_path):
    settings = {"random_state": None, "refine": False, "checkpoint_dir": tmp_path}
    with pytest.raises(CutError):
        plus(**settings, callbacks=[Cut("search", 1)]).fit(few)
    again = plus(**settings).fit(few)
    same(again, plus(random_state=again.random_state_, refine=False).fit(few))


# --- KSubspaces ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"trim": 0.1}, {"affine": True}, {"subspace_dim": [1, 2, 2, 3]}]
)
@pytest.mark.parametrize("iteration", [1, 3])
def test_a_linear_fit_goes_on_to_the_same_labels(cloud, tmp_path, settings, iteration):
    # A start that is far from the end: from better ones a fit is over before it is cut.
    start = np.random.default_rng(1).integers(4, size=len(cloud))
    shared = {"subspace_dim": 2, "tol": 0.0, "init": start, "random_state": 1}

    def linear(**more):
        return KSubspaces(4, **shared | settings, **more)

    whole = linear().fit(cloud)
    assert whole.n_iter_ > 3
    with pytest.raises(CutError):
        linear(checkpoint_dir=tmp_path, callbacks=[Cut("fit", iteration)]).fit(cloud)
    heard = []
    again = linear(checkpoint_dir=tmp_path, callbacks=[lambda _, r: heard.append(r)]).fit(cloud)
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    np.testing.assert_allclose(again.inertia_, whole.inertia_, rtol=1e-9)
    assert again.n_iter_ == whole.n_iter_
    assert [r.get("changed") for r in again.history_] == [r.get("changed") for r in whole.history_]
    assert all(record["stage"] == "fit" for record in heard)  # no second search


def test_weights_belong_to_the_fit(cloud, tmp_path):
    weights = np.linspace(0.5, 2, len(cloud))
    settings = {"subspace_dim": 2, "n_init": 1, "random_state": 0, "checkpoint_dir": tmp_path}
    KSubspaces(4, **settings).fit(cloud, sample_weight=weights)
    with pytest.raises(ModelFileError, match="sample_weight"):
        KSubspaces(4, **settings).fit(cloud)
