"""A `KSCN` on disk is the same model; a damaged one is refused."""

import json
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

from kscn import KSCN, load_model
from kscn.errors import InputError, ModelFileError
from kscn.modelfile import MANIFEST_NAME, TENSORS_NAME, read_model, write_model
from kscn.nn import ConvAutoencoder, DenseAutoencoder, network

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

N = 90
METHODS = ("transform", "residuals", "predict_proba", "score_samples", "reconstruct")


class Own(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.down, self.up = nn.Linear(64, width), nn.Linear(width, 64)
        self.norm = nn.BatchNorm1d(width)

    def encode(self, images):
        return self.norm(self.down(images.flatten(1)))

    def decode(self, latent):
        return self.up(latent).unflatten(1, (1, 8, 8))


def digits():
    return load_digits().images[:N].astype(np.uint8)


quick = partial(short.kscn, autoencoder_params={"channels": [6, 4], "kernels": [5, 3]})


DENSE = {"hidden": [12], "latent_dim": 5}
CASES = {
    "identity": {},
    "whitened": {"latent": "whitened", "latent_dim": 6, "loss": "separation", "augment": "affine"},
    "batch norm": {"autoencoder_params": {"channels": [4], "kernels": [3], "batch_norm": True}},
    "several dimensions": {"subspace_dim": [1, 2, 3]},
    "dense": {"autoencoder": "sae", "autoencoder_params": DENSE},
    "vectors": {"autoencoder_params": DENSE},
}


def same(loaded, model, X):
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    for name in METHODS:
        found, expected = getattr(loaded, name)(X), getattr(model, name)(X)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_model_is_the_same_to_the_bit(tmp_path, case):
    X = digits().reshape(N, 64).astype(float) if case == "vectors" else digits()
    model = quick(**CASES[case]).fit(X)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert type(loaded) is KSCN
    same(loaded, model, X)
    for name in ("subspaces_", "subspace_dims_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    for name in ("inertia_", "n_iter_", "noise_variance_", "n_features_in_", "random_state_"):
        assert getattr(loaded, name) == getattr(model, name)
    # Saved again, and fitted again from what the file says.
    loaded.save(tmp_path / "again")
    same(load_model(tmp_path / "again"), model, X)
    np.testing.assert_array_equal(clone(loaded).fit(X).labels_, model.labels_)


def test_another_process_gets_the_same_without_pickles(tmp_path):
    X = digits()
    model = quick(**CASES["whitened"]).fit(X)
    model.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", X)
    code = """
import pickle, sys
def refuse(*args, **kwargs):
    raise AssertionError("a pickle was opened")
import kscn, numpy, torch
pickle.load = pickle.loads = pickle.Unpickler = torch.load = refuse
model = kscn.load_model(sys.argv[1] + "/model")
X = numpy.load(sys.argv[1] + "/x.npy")
numpy.savez(sys.argv[1] + "/out.npz", labels=model.predict(X), latents=model.transform(X))
"""
    (tmp_path / "code.py").write_text(code)
    process = warm.Started(tmp_path / "code.py", [tmp_path])
    assert process.communicate() == ("", "")
    assert process.returncode == 0
    out = np.load(tmp_path / "out.npz")
    np.testing.assert_array_equal(out["labels"], model.labels_)
    np.testing.assert_array_equal(out["latents"], model.transform(X))


def test_parameters_are_kept_and_the_seed_that_was_used(tmp_path):
    params = {
        "n_clusters": np.int64(3),
        "subspace_dim": np.array([2, 1, 2]),
        "trim": np.float64(0.2),
        "weight": 0.5,
        "update": "grassmann",
        "augment": {"kind": "affine", "angle": 3.0},
        "random_state": None,
        "callbacks": [lambda *_: None],
        "device": "cpu",
    }
    model = quick(**params).fit(digits())
    model.save(tmp_path / "model")
    found = load_model(tmp_path / "model").get_params()
    for name in ("weight", "update", "augment"):
        assert found[name] == model.get_params()[name]
    assert found["settings"] == model.settings
    assert found["n_clusters"] == 3
    assert found["subspace_dim"] == [2, 1, 2]
    assert found["random_state"] == model.random_state_
    assert tuple(found["callbacks"]) == ()
    assert "pretrained" not in found["settings"]


def test_what_a_file_cannot_hold_is_left_out(tmp_path):
    model = quick(init=np.arange(N) % 3, augment=lambda batch, generator: batch).fit(digits())
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert (loaded.init, loaded.augment) == ("auto", "auto")
    same(loaded, model, digits())


def test_feature_names_are_kept(tmp_path):
    frame = pandas.DataFrame(digits().reshape(N, 64), columns=[f"pixel {i}" for i in range(64)])
    model = quick(autoencoder_params=DENSE).fit(frame)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_array_equal(loaded.predict(frame), model.labels_)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[frame.columns[::-1]])


def test_an_unfitted_model_cannot_be_saved(tmp_path):
    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# Modules ------------------------------------------------------------------------------------------


def own(width=5):
    torch.manual_seed(0)
    return Own(width)


@pytest.fixture
def saved_own(tmp_path):
    model = quick(autoencoder=own(), autoencoder_params=None).fit(digits())
    model.save(tmp_path / "model")
    return model, tmp_path / "model"


def test_a_module_of_your_own_is_given_back_its_weights(saved_own):
    model, path = saved_own
    module = Own()
    before = module.down.weight.clone()
    loaded = load_model(path, autoencoder=module)
    same(loaded, model, digits())
    assert loaded.autoencoder is module
    assert torch.equal(module.down.weight, before)  # a copy has the weights
    loaded.save(path)
    same(load_model(path, autoencoder=Own()), model, digits())


def test_a_module_of_your_own_is_asked_for(saved_own):
    with pytest.raises(InputError, match=r"load_model\(path, autoencoder=Own\(...\)\)"):
        load_model(saved_own[1])


def test_another_module_than_the_saved_one_is_refused(saved_own):
    _, path = saved_own
    with pytest.raises(ModelFileError, match="another architecture"):
        load_model(path, autoencoder=own(6))
    with pytest.raises(ModelFileError, match="another architecture"):
        load_model(path, autoencoder=DenseAutoencoder(64, [12], 5))
    with pytest.raises(InputError, match="has no method encode"):
        load_model(path, autoencoder=nn.Linear(3, 3))


def test_a_module_is_not_asked_for_where_the_file_has_one(tmp_path):
    quick().fit(digits()).save(tmp_path / "model")
    with pytest.raises(InputError, match="brings its own ConvAutoencoder"):
        load_model(tmp_path / "model", autoencoder=Own())


@pytest.mark.parametrize(
    "module", [lambda: ConvAutoencoder((1, 8, 8), [5], [3]), lambda: DenseAutoencoder(64, [9], 4)]
)
def test_a_ready_made_network_of_kscn_needs_no_module_to_load(tmp_path, module):
    X = digits() if isinstance(module(), ConvAutoencoder) else digits().reshape(N, 64)
    model = quick(autoencoder=module(), autoencoder_params=None).fit(X)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    same(loaded, model, X)
    again = clone(loaded).fit(X)
    assert again.autoencoder_.config() == model.autoencoder_.config()


def test_a_class_of_your_own_may_have_the_name_of_one_of_kscn(tmp_path):
    twin = type("ConvAutoencoder", (Own,), {})
    model = quick(autoencoder=twin(), autoencoder_params=None).fit(digits())
    model.save(tmp_path / "model")
    same(load_model(tmp_path / "model", autoencoder=twin()), model, digits())


# Damage -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whitened(tmp_path_factory):
    path = tmp_path_factory.mktemp("whitened") / "model"
    quick(**CASES["whitened"]).fit(digits()).save(path)
    return path


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    path = tmp_path_factory.mktemp("dense") / "model"
    quick(**CASES["dense"]).fit(digits()).save(path)
    return path


@pytest.fixture
def saved(whitened, tmp_path):
    return shutil.copytree(whitened, tmp_path / "model")


def drop(*names):
    def change(params, tensors):
        for name in names:
            del tensors[name]

    return change


def replace(name, make):
    def change(params, tensors):
        tensors[name] = make(tensors[name])

    return change


def set_in(group, name, value):
    def change(params, tensors):
        params[group][name] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        drop("subspaces"),
        drop("subspace_dims"),
        drop("scaling.shift"),
        drop("scaling.factor"),
        drop("latent.linear.weight"),
        replace("subspaces", lambda a: a[0]),
        replace("subspaces", lambda a: 2 * a),
        replace("subspaces", lambda a: np.full_like(a, np.nan)),
        replace("subspaces", lambda a: a[:2]),
        replace("subspaces", lambda a: np.linalg.qr(a[:, :5])[0]),
        replace("subspaces", lambda a: a.astype(np.float16)),
        replace("subspaces", lambda a: a.astype(np.int64)),
        replace("subspaces", lambda a: a[:0]),
        replace("subspaces", lambda a: a[:, :0]),
        replace("subspaces", lambda a: a[:, :, :0]),
        replace("subspace_dims", lambda a: a + 1),
        replace("subspace_dims", lambda a: a.astype(np.float32)),
        replace("scaling.factor", lambda a: np.zeros_like(a)),
        replace("scaling.factor", lambda a: np.full_like(a, np.inf)),
        replace("scaling.factor", lambda a: np.ones(3)),
        replace("scaling.shift", lambda a: np.zeros(3)),
        replace("scaling.shift", lambda a: np.full_like(a, np.nan)),
        replace("autoencoder.encoder.0.weight", lambda a: a.astype(np.float16)),
        replace("autoencoder.encoder.0.weight", lambda a: a.astype(np.int32)),
        replace("autoencoder.encoder.0.weight", lambda a: np.full_like(a, np.nan)),
        replace("autoencoder.encoder.0.weight", lambda a: a[:0]),
        replace("latent.linear.weight", lambda a: a[:0]),
        replace("latent.linear.weight", lambda a: a.astype(np.float64)),
        replace("latent.linear.bias", lambda a: a[:0]),
        replace("latent.linear.weight", lambda a: a[:, :3]),
        replace("latent.linear.weight", lambda a: a[0]),
        set_in("params", "n_clusters", 4),
        set_in("params", "n_clusters", True),
        set_in("params", "colour", "red"),
        set_in("params", "batch_size", "x"),
        set_in("params", "batch_size", 0),
        set_in("params", "temperature", -1),
        set_in("params", "loss", "none"),
        set_in("fitted", "settings", {"batch_size": "x"}),
        set_in("fitted", "settings", {"temperature": -1}),
        set_in("fitted", "settings", "none"),
        set_in("params", "random_state", None),
        set_in("params", "random_state", -3),
        set_in("params", "random_state", 2**40),
        set_in("autoencoder", "kind", "gan"),
        set_in("autoencoder", "config", {"shape": [1, 2, 2]}),
        set_in("autoencoder", "config", {"size": 3}),
        set_in("fitted", "n_iter", "many"),
        set_in("fitted", "n_iter", "very\nmany " * 1000),
        set_in("fitted", "n_iter", -1),
        set_in("fitted", "inertia", "low"),
        set_in("fitted", "noise_variance", [1]),
        set_in("fitted", "n_features_in", 65),
        set_in("fitted", "feature_names", ["a", "b"]),
        set_in("fitted", "feature_names", [1] * 64),
        set_in("fitted", "feature_names", "a" * 64),
        set_in("fitted", "input_shape", [1, 8.0, 8]),
        set_in("fitted", "input_shape", [1, -8, -8]),
        set_in("fitted", "input_shape", "8"),
        set_in("fitted", "input_shape", [1, 9, 9]),
        set_in("fitted", "input_shape", [64]),
        lambda params, tensors: params.pop("params"),
        lambda params, tensors: params.pop("fitted"),
        lambda params, tensors: params.pop("autoencoder"),
        lambda params, tensors: params["fitted"].pop("input_shape"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(saved, change):
    model = read_model(saved)
    change(model.params, model.tensors)
    write_model(saved, model.kind, model.params, model.tensors)
    with pytest.raises(ModelFileError, match="does not describe a KSCN model") as caught:
        load_model(saved)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({"channels": [60_000, 60_000], "kernels": [5, 3]}, [1, 8, 8]),  # 130 GB of weights
        ({"channels": [6, 4], "kernels": [5, 3], "shape": [1, 2**20, 2**20]}, [1, 2**20, 2**20]),
        ({"channels": [1] * 100_000, "kernels": [3] * 100_000}, [1, 8, 8]),
    ],
)
def test_a_network_that_a_file_pretends_to_hold_is_not_allocated(saved, monkeypatch, config, shape):
    devices = []

    def made(**settings):
        devices.append(torch.get_default_device().type)
        return ConvAutoencoder(**settings)

    monkeypatch.setitem(network.AUTOENCODERS, "cae", made)
    load_model(saved)
    assert devices.pop() == "cpu"  # only what fits gets memory
    model = read_model(saved)
    model.params["autoencoder"]["config"] = {"shape": shape} | config
    model.params["fitted"]["input_shape"] = shape
    write_model(saved, model.kind, model.params, model.tensors)
    with pytest.raises(ModelFileError, match="does not describe a KSCN"):
        load_model(saved)
    assert set(devices) <= {"meta"}


@pytest.mark.parametrize(
    "config",
    [
        {"n_features": 64, "hidden": [2**40], "latent_dim": 5},
        {"n_features": 64, "hidden": [12], "latent_dim": 2**40},
        {"n_features": 64, "hidden": [12] * 10_000, "latent_dim": 5},
        {"n_features": 2**40, "hidden": [12], "latent_dim": 5},
    ],
)
def test_a_dense_network_that_a_file_pretends_to_hold_is_not_allocated(dense, tmp_path, config):
    model = read_model(dense)
    model.params["autoencoder"]["config"] = config
    model.params["fitted"]["input_shape"] = [config["n_features"]]
    write_model(tmp_path / "other", model.kind, model.params, model.tensors)
    with pytest.raises(ModelFileError, match="does not describe a KSCN"):
        load_model(tmp_path / "other")


def test_a_latent_that_is_empty_but_wide_is_not_allocated(dense, tmp_path):
    model = read_model(dense)
    weights = {"latent.linear.weight": np.zeros((2**40, 0), dtype=np.float32)}
    write_model(tmp_path / "other", model.kind, model.params, model.tensors | weights)
    with pytest.raises(ModelFileError, match="a shape larger than the file"):
        load_model(tmp_path / "other")


def test_a_file_says_nothing_about_where_and_how_it_is_used(saved):
    model = read_model(saved)
    strange = {"device": "cuda:9", "checkpoint_dir": "/anywhere", "pretrained": "/else"}
    model.params["params"] |= strange
    write_model(saved, model.kind, model.params, model.tensors)
    loaded = load_model(saved)
    assert (loaded.device, loaded.checkpoint_dir) == ("auto", None)
    assert "pretrained" not in loaded.settings


def test_a_module_of_your_own_is_not_tried_on_absurd_samples(saved_own):
    _, path = saved_own
    model = read_model(path)
    model.params["fitted"]["input_shape"] = [1, 2**20, 2**20]
    write_model(path, model.kind, model.params, model.tensors)
    with pytest.raises(ModelFileError, match="samples have 1099511627776 values"):
        load_model(path, autoencoder=Own())


def test_a_model_that_was_cut_off_or_changed_is_refused(saved):
    content = (saved / TENSORS_NAME).read_bytes()
    (saved / TENSORS_NAME).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelFileError, match="cut off"):
        load_model(saved)
    changed = bytearray(content)
    changed[-1] ^= 1
    (saved / TENSORS_NAME).write_bytes(changed)
    with pytest.raises(ModelFileError, match="checksum"):
        load_model(saved)


def test_the_manifest_is_plain_json(saved):
    manifest = json.loads((saved / MANIFEST_NAME).read_text())
    assert manifest["kind"] == "KSCN"
    assert {entry.name for entry in saved.iterdir()} == {MANIFEST_NAME, TENSORS_NAME}
