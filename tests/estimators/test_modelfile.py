"""A fitted estimator on disk is the same model; one that is damaged or hostile is refused."""

import json
import resource
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import pytest
import short
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from torch import nn

from kscn import KSCNPlus, KSubspaces, load_model
from kscn.data import make_union_of_subspaces
from kscn.errors import ModelFileError
from kscn.modelfile import MANIFEST_NAME, TENSORS_NAME, read_model, write_model
from kscn.nn import ConvAutoencoder, DenseAutoencoder

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

pytestmark = pytest.mark.filterwarnings("ignore:.*clusters ended up empty")
N = 90
DIGITS = load_digits().images[:N].astype(np.uint8)
PLANES = make_union_of_subspaces(N, 3, 9, 2, noise=0.3, random_state=0)[0]

linear = partial(KSubspaces, 3, subspace_dim=2, n_init=1, random_state=0)
deep = partial(short.kscn, autoencoder_params={"channels": [6, 4], "kernels": [5, 3]})
plus = partial(KSCNPlus, 3, starts=1, random_state=0)

DENSE = {"hidden": [12], "latent_dim": 5}
WHITENED = {"latent": "whitened", "latent_dim": 6, "loss": "separation", "augment": "affine"}
NORMED = {"autoencoder_params": {"channels": [4], "kernels": [3], "batch_norm": True}}
CASES = {
    "linear": (linear, PLANES),
    "linear, float64": (linear, PLANES.astype(np.float64) + 5),
    "linear, affine": (partial(linear, affine=True), PLANES + np.float32(5)),
    "linear, several dimensions": (partial(linear, subspace_dim=np.array([1, 2, 3])), PLANES),
    "linear, numbers of numpy": (partial(linear, trim=np.float32(0.1), affine=np.True_), PLANES),
    "deep": (deep, DIGITS),
    "deep, whitened": (partial(deep, **WHITENED), DIGITS),
    "deep, batch norm": (partial(deep, **NORMED), DIGITS),
    "deep, dense": (partial(deep, autoencoder="sae", autoencoder_params=DENSE), DIGITS),
    "deep, vectors": (partial(deep, autoencoder_params=DENSE), DIGITS.reshape(N, 64) * 1.0),
    "plus": (plus, DIGITS),
    "plus, vectors": (plus, PLANES),
    "plus, refined": (partial(plus, refine=True, epochs=1), DIGITS),
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """fitted(case) -> the estimator, and the path that it was saved at."""
    known, folder = {}, tmp_path_factory.mktemp("models")

    def fit(case):
        if case not in known:
            make, X = CASES[case]
            known[case] = make().fit(X)
            known[case].save(folder / case)
        return known[case], folder / case

    return fit


def same(loaded, model, X):
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    for name in ("transform", "residuals", "predict_proba", "score_samples", "reconstruct"):
        if hasattr(model, name):
            found, expected = getattr(loaded, name)(X), getattr(model, name)(X)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_model_is_the_same_to_the_bit(fitted, case):
    (model, path), X = fitted(case), CASES[case][1]
    loaded = load_model(path)
    assert type(loaded) is type(model)
    same(loaded, model, X)
    for name in ("subspaces_", "subspace_dims_", "offsets_", "spectra_"):
        if hasattr(model, name):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    for name in ("inertia_", "n_iter_", "noise_variance_", "n_features_in_", "random_state_"):
        assert getattr(loaded, name) == getattr(model, name)


@pytest.mark.parametrize("case", ["linear, affine", "deep, whitened"])
def test_a_loaded_model_can_be_saved_again_and_fitted_again(fitted, case, tmp_path):
    (model, path), X = fitted(case), CASES[case][1]
    load_model(path).save(tmp_path / "again")
    again = load_model(tmp_path / "again")
    same(again, model, X)
    np.testing.assert_array_equal(clone(again).fit(X).labels_, model.labels_)


def test_another_process_gets_the_same_without_pickles(fitted, tmp_path):
    model, path = fitted("deep, whitened")
    np.save(tmp_path / "x.npy", DIGITS)
    code = """
import pickle, sys
def refuse(*args, **kwargs):
    raise AssertionError("a pickle was opened")
import kscn, numpy, torch
pickle.load = pickle.loads = pickle.Unpickler = torch.load = refuse
model = kscn.load_model(sys.argv[1])
X = numpy.load(sys.argv[2] + "/x.npy")
numpy.savez(sys.argv[2] + "/out.npz", labels=model.predict(X), latents=model.transform(X))
"""
    (tmp_path / "code.py").write_text(code)
    process = warm.Started(tmp_path / "code.py", [path, tmp_path])
    assert process.communicate() == ("", "")
    assert process.returncode == 0
    out = np.load(tmp_path / "out.npz")
    np.testing.assert_array_equal(out["labels"], model.labels_)
    np.testing.assert_array_equal(out["latents"], model.transform(DIGITS))


def test_parameters_are_kept_and_the_seed_that_was_used(tmp_path):
    model = linear(trim=0.1, tol=1e-3, random_state=None, callbacks=[lambda *_: None])
    model.fit(PLANES).save(tmp_path / "model")
    expected = model.get_params() | {"callbacks": (), "random_state": model.random_state_}
    assert load_model(tmp_path / "model").get_params() == expected
    augment = {"kind": "affine", "angle": 3.0}
    model = deep(subspace_dim=np.array([2, 1, 2]), update="grassmann", augment=augment)
    model.fit(DIGITS).save(tmp_path / "deep")
    found = load_model(tmp_path / "deep")
    assert (found.subspace_dim, found.update, found.augment) == ([2, 1, 2], "grassmann", augment)
    assert found.tol == model.tol


def test_what_a_file_cannot_hold_is_left_out(tmp_path):
    start = np.arange(N) % 3
    model = deep(init=start, augment=lambda batch, generator: batch).fit(DIGITS)
    model.save(tmp_path / "deep")
    loaded = load_model(tmp_path / "deep")
    assert (loaded.init, loaded.augment) == ("auto", "auto")
    same(loaded, model, DIGITS)
    linear(init=start).fit(PLANES).save(tmp_path / "linear")
    assert load_model(tmp_path / "linear").init == "auto"


@pytest.mark.parametrize("make", [linear, partial(deep, autoencoder_params=DENSE), plus])
def test_feature_names_are_kept(make, tmp_path):
    frame = pandas.DataFrame(PLANES, columns=[f"pixel {i}" for i in range(9)])
    model = make().fit(frame)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[frame.columns[::-1]])


def test_saving_replaces_another_model(tmp_path):
    KSubspaces(2, n_init=1, random_state=0).fit(PLANES).save(tmp_path / "model")
    linear().fit(PLANES).save(tmp_path / "model")
    assert load_model(tmp_path / "model").n_clusters == 3
    manifest = json.loads((tmp_path / "model" / MANIFEST_NAME).read_text())
    assert manifest["kind"] == "KSubspaces"
    assert {entry.name for entry in (tmp_path / "model").iterdir()} == {MANIFEST_NAME, TENSORS_NAME}


@pytest.mark.parametrize("make", [linear, deep, plus])
def test_an_unfitted_model_cannot_be_saved(make, tmp_path):
    with pytest.raises(NotFittedError):
        make().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# Networks of one's own ----------------------------------------------------------------------------


class Own(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.down, self.up = nn.Linear(64, width), nn.Linear(width, 64)
        self.norm = nn.BatchNorm1d(width)

    def encode(self, images):
        return self.norm(self.down(images.flatten(1)))

    def decode(self, latent):
        return self.up(latent).unflatten(1, (1, 8, 8))


@pytest.fixture(scope="module")
def saved_own(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("own") / "model"
    model = deep(autoencoder=Own(), autoencoder_params=None).fit(DIGITS)
    model.save(path)
    return model, path


def test_a_module_of_your_own_is_given_back_its_weights(saved_own, tmp_path):
    model, path = saved_own
    module = Own()
    before = module.down.weight.clone()
    loaded = load_model(path, autoencoder=module)
    same(loaded, model, DIGITS)
    assert loaded.autoencoder is module
    assert torch.equal(module.down.weight, before)  # a copy has the weights
    loaded.save(tmp_path / "again")
    same(load_model(tmp_path / "again", autoencoder=Own()), model, DIGITS)


def test_a_module_is_asked_for_where_it_is_needed_and_must_be_the_same(saved_own, fitted):
    _, path = saved_own
    with pytest.raises(ModelFileError, match=r"load_model\(path, autoencoder=Own\(...\)\)"):
        load_model(path)
    for other in (Own(6), DenseAutoencoder(64, [12], 5), nn.Linear(3, 3)):
        with pytest.raises(ModelFileError, match="another architecture"):
            load_model(path, autoencoder=other)
    with pytest.raises(ModelFileError, match="brings its own ConvAutoencoder"):
        load_model(fitted("deep")[1], autoencoder=Own())


def test_a_ready_made_network_of_kscn_needs_no_module_to_load(tmp_path):
    model = deep(autoencoder=ConvAutoencoder((1, 8, 8), [5], [3]), autoencoder_params=None)
    model.fit(DIGITS).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    same(loaded, model, DIGITS)


def test_a_class_of_your_own_may_have_the_name_of_one_of_kscn(tmp_path):
    twin = type("ConvAutoencoder", (Own,), {})
    model = deep(autoencoder=twin(), autoencoder_params=None).fit(DIGITS)
    model.save(tmp_path / "model")
    same(load_model(tmp_path / "model", autoencoder=twin()), model, DIGITS)


# Damage -------------------------------------------------------------------------------------------


@pytest.fixture
def changed(fitted, tmp_path):
    """Save a model again, with a valid checksum, after `change(params, tensors)`."""

    def change(case, change):
        path = shutil.copytree(fitted(case)[1], tmp_path / "model")
        model = read_model(path)
        change(model.params, model.tensors)
        write_model(path, model.kind, model.params, model.tensors)
        return path

    return change


def refused(path, words="does not describe a"):
    with pytest.raises(ModelFileError, match=words) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def drop(name):
    return lambda params, tensors: tensors.pop(name)


def replace(name, make):
    return lambda params, tensors: tensors.update({name: make(tensors[name])})


def leave_out(*names):
    def change(params, tensors):
        for name in names[:-1]:
            params = params[name]
        del params[names[-1]]

    return change


def set_in(group, name, value):
    return lambda params, tensors: params[group].update({name: value})


def step(number, **changes):
    return lambda params, tensors: params["model"]["steps"][number].update(changes)


def config(number, **changes):
    return lambda params, tensors: params["model"]["steps"][number]["config"].update(changes)


def assignment(**changes):
    return lambda params, tensors: params["model"]["assignment"]["config"].update(changes)


def nan(array):
    return np.full_like(array, np.nan)


# What any file may get wrong, tried on one of each estimator.
OF_ALL = [
    drop("assignment.bases"),
    replace("assignment.bases", lambda a: a[0]),
    replace("assignment.bases", lambda a: 2 * a),
    replace("assignment.bases", nan),
    replace("assignment.bases", lambda a: a[:2]),
    replace("assignment.bases", lambda a: a.astype(np.float16)),
    replace("assignment.bases", lambda a: a.astype(np.int64)),
    replace("assignment.bases", lambda a: a[:0]),
    replace("assignment.bases", lambda a: a[:, :0]),
    replace("assignment.bases", lambda a: a[:, :, :0]),
    assignment(n_clusters=4),
    assignment(width=2**40),
    assignment(dim="2"),
    assignment(dtype="int64"),
    assignment(colour="red"),
    set_in("params", "n_clusters", 4),
    set_in("params", "n_clusters", True),
    set_in("params", "colour", "red"),
    set_in("params", "batch_size", "x"),
    set_in("params", "batch_size", 0),
    set_in("params", "random_state", None),
    set_in("params", "random_state", -3),
    set_in("params", "random_state", 0.5),
    set_in("params", "random_state", 2**40),
    set_in("fitted", "n_iter", "very\nmany " * 1000),
    set_in("fitted", "n_iter", -1),
    set_in("fitted", "inertia", "low"),
    set_in("fitted", "noise_variance", [1]),
    set_in("model", "temperature", None),
    set_in("model", "assignment", {"kind": "votes", "config": {}}),
    set_in("model", "steps", None),
    set_in("model", "steps", [{"kind": "pickle", "config": {}}]),
    set_in("fitted", "feature_names", ["a", "b"]),
    set_in("fitted", "feature_names", [1] * 64),
    set_in("fitted", "feature_names", "a" * 64),
    set_in("model", "shape", [1, 8.0, 8]),
    set_in("model", "shape", [1, -8, -8]),
    set_in("model", "shape", [3, 3, 3]),
    set_in("model", "shape", "8"),
    leave_out("params"),
    leave_out("fitted"),
    leave_out("fitted", "inertia"),
    leave_out("model"),
    leave_out("model", "shape"),
]
OF_ONE = {
    "linear, affine": [
        drop("assignment.offsets"),
        drop("assignment.shift"),
        drop("spectra"),
        replace("spectra", lambda a: a.astype(np.int64)),
        replace("spectra", lambda a: np.full_like(a, np.inf)),
        replace("assignment.offsets", lambda a: a[:, :4]),
        replace("assignment.offsets", nan),
        replace("assignment.shift", lambda a: a[:4]),
        replace("assignment.shift", nan),
        set_in("params", "trim", 2),
        set_in("params", "affine", "yes"),
        set_in("params", "subspace_dim", 9),
    ],
    "deep, whitened": [
        drop("steps.0.shift"),
        drop("steps.0.factor"),
        drop("steps.2.linear.weight"),
        replace("steps.0.factor", lambda a: np.zeros_like(a)),
        replace("steps.0.factor", lambda a: np.full_like(a, np.inf)),
        replace("steps.0.factor", lambda a: np.ones(3)),
        replace("steps.0.shift", lambda a: np.zeros(3)),
        replace("steps.0.shift", nan),
        replace("steps.1.encoder.0.weight", lambda a: a.astype(np.float16)),
        replace("steps.1.encoder.0.weight", lambda a: a.astype(np.int32)),
        replace("steps.1.encoder.0.weight", nan),
        replace("steps.1.encoder.0.weight", lambda a: a[:0]),
        replace("steps.2.linear.weight", lambda a: a[:0]),
        replace("steps.2.linear.weight", lambda a: a.astype(np.float64)),
        replace("steps.2.linear.weight", lambda a: a[:, :3]),
        replace("steps.2.linear.weight", lambda a: a[0]),
        replace("steps.2.linear.bias", lambda a: a[:0]),
        set_in("params", "temperature", -1),
        set_in("params", "loss", "none"),
        set_in("fitted", "settings", {"batch_size": "x"}),
        set_in("fitted", "settings", "none"),
        step(1, kind="gan"),
        step(1, config={"shape": [1, 2, 2]}),
        step(1, config={"size": 3}),
        config(1, shape=[1, 16, 16]),
        step(1, kind=[]),
        leave_out("fitted", "settings"),
    ],
    "plus, vectors": [
        replace("steps.0.factor", lambda a: -a),
        replace("steps.0.shift", lambda a: a[:5]),
        replace("steps.1.directions", lambda a: a[:0]),
        replace("steps.1.directions", lambda a: a.astype(np.int64)),
        config(1, n_features=11),
        set_in("fitted", "confidence", "high"),
        set_in("fitted", "chosen", 3),
        set_in("fitted", "subspace_dim", None),
        set_in("params", "starts", -1),
        set_in("model", "steps", []),
    ],
    "plus, refined": [
        replace("steps.1.maps.0.weight", lambda a: a.astype(np.float16)),
        replace("steps.1.maps.0.weight", nan),
        replace("steps.0.factor", lambda a: np.full_like(a, np.inf)),
        config(1, latent_dim=2**40),
        config(1, latent_dim="x"),
        config(1, channels=[]),
        config(1, shape=[1, 2**20, 2**20]),
    ],
}


@pytest.mark.parametrize("case", OF_ONE)
def test_parts_that_do_not_fit_together_are_refused(changed, case):
    for change in [*OF_ALL, *OF_ONE[case]]:
        path = changed(case, change)
        refused(path)
        shutil.rmtree(path)


@pytest.mark.parametrize("shape", [[14_000, 8], [2**40, 2**40], [8, 8.5], "8"])
def test_images_that_a_file_pretends_to_know_get_no_filters(changed, shape):
    refused(changed("plus", config(0, shape=shape)))


@pytest.mark.parametrize(
    ("described", "shape"),
    [
        ({"channels": [60_000, 60_000], "kernels": [5, 3]}, [1, 8, 8]),  # 130 GB of weights
        ({"channels": [6, 4], "kernels": [5, 3]}, [1, 2**20, 2**20]),
        ({"channels": [6, 4], "kernels": [5, 3]}, [1, 2**12, 2**12]),
        ({"channels": [1] * 100_000, "kernels": [3] * 100_000}, [1, 8, 8]),
    ],
)
def test_a_network_that_a_file_pretends_to_hold_is_not_allocated(changed, described, shape):
    def pretend(params, tensors):
        params["model"]["steps"][1]["config"] = {"shape": shape} | described
        params["model"]["shape"] = shape

    before = peak_megabytes()
    refused(changed("deep, whitened", pretend))
    assert peak_megabytes() - before < 200


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize(
    "config",
    [
        {"n_features": 64, "hidden": [2**40], "latent_dim": 5},
        {"n_features": 64, "hidden": [12], "latent_dim": 2**40},
        {"n_features": 64, "hidden": [12] * 10_000, "latent_dim": 5},
        {"n_features": 2**40, "hidden": [12], "latent_dim": 5},
    ],
)
def test_a_dense_network_that_a_file_pretends_to_hold_is_not_allocated(changed, config):
    def pretend(params, tensors):
        params["model"]["steps"][1]["config"] = config
        params["model"]["shape"] = [config["n_features"]]

    refused(changed("deep, dense", pretend))


def test_what_is_empty_but_large_is_not_allocated(changed, saved_own, tmp_path):
    wide = np.zeros((2**40, 0), dtype=np.float32)
    path = changed("deep, dense", lambda _, tensors: tensors.update({"steps.1.wide": wide}))
    refused(path, "of shape")
    model = read_model(saved_own[1])
    model.params["model"]["shape"] = [1, 2**20, 2**20]
    write_model(tmp_path / "own", model.kind, model.params, model.tensors)
    with pytest.raises(ModelFileError, match=r"samples are of shape \(1, 1048576, 1048576\)"):
        load_model(tmp_path / "own", autoencoder=Own())


def test_subspaces_whose_sums_would_fill_the_memory_are_refused(tmp_path):
    d = 40_000
    tensors = {"assignment.bases": np.eye(d, 1, dtype=np.float32)[None], "spectra": np.ones((1, d))}
    fitted = {"inertia": 0.0, "n_iter": 1, "noise_variance": 0.0, "feature_names": []}
    own = {"kind": "subspaces", "config": {"n_clusters": 1, "dim": 1, "width": d}}
    facts = {
        "params": {"n_clusters": 1, "affine": False, "random_state": 0},
        "fitted": fitted,
        "model": {"shape": [d], "steps": [], "assignment": own, "temperature": 1.0},
    }
    write_model(tmp_path / "m", "KSubspaces", facts, tensors)
    refused(tmp_path / "m", r"needs 11\.9 GiB")


def test_a_file_says_nothing_about_where_and_how_it_is_used(changed):
    strange = {"device": "cuda:9", "checkpoint_dir": "/anywhere"}
    loaded = load_model(changed("deep", lambda params, _: params["params"].update(strange)))
    assert (loaded.device, loaded.checkpoint_dir) == ("auto", None)


def test_a_model_that_was_cut_off_or_changed_is_refused(changed):
    path = changed("linear", lambda *_: None)
    content = (path / TENSORS_NAME).read_bytes()
    (path / TENSORS_NAME).write_bytes(content[: len(content) // 2])
    refused(path, "cut off")
    (path / TENSORS_NAME).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused(path, "checksum")
