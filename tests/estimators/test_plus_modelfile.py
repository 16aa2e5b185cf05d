"""A `KSCNPlus` on disk that is damaged or hostile is refused before anything is made of it."""

import shutil
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

from kscn import KSCNPlus, load_model
from kscn.data import make_union_of_subspaces
from kscn.errors import ModelFileError
from kscn.features import maps
from kscn.modelfile import read_model, write_model

pytestmark = pytest.mark.usefixtures("short_choice")
VECTORS = make_union_of_subspaces(90, 3, 12, 2, noise=0.1, random_state=0)[0]
IMAGES = load_digits().images[:90].astype(np.float32)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Of each kind: images with an encoder and without, vectors."""
    folder = tmp_path_factory.mktemp("plus")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single epoch
        refined = KSCNPlus(3, starts=1, refine=True, epochs=1, random_state=0).fit(IMAGES)
    refined.save(folder / "refined")
    KSCNPlus(3, starts=1, random_state=0).fit(IMAGES).save(folder / "images")
    KSCNPlus(3, starts=1, random_state=0).fit(VECTORS).save(folder / "vectors")
    return folder


@pytest.fixture
def changed(models, tmp_path):
    """Save a model again, with a valid checksum, after `change(params, tensors)`."""

    def change(name, change):
        path = shutil.copytree(models / name, tmp_path / "model")
        model = read_model(path)
        change(model.params, model.tensors)
        write_model(path, model.kind, model.params, model.tensors)
        return path

    return change


def refused(path):
    with pytest.raises(ModelFileError, match="does not describe a") as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def replace(name, make):
    def change(params, tensors):
        tensors[name] = make(tensors[name])

    return change


def set_in(group, name, value):
    def change(params, tensors):
        params[group][name] = value

    return change


def step(number, **changes):
    def change(params, tensors):
        params["features"]["steps"][number] |= changes

    return change


@pytest.mark.parametrize("shape", [[14_000, 8], [262_144, 8], [2**40, 2**40], [8, 8.5], "8"])
def test_images_that_a_file_pretends_to_know_get_no_filters(changed, monkeypatch, shape):
    monkeypatch.setattr(maps, "Scattering2D", None)
    refused(changed("images", step(0, shape=shape)))


def test_a_file_is_opened_without_making_filters(models, monkeypatch):
    monkeypatch.setattr(maps, "Scattering2D", None)
    assert load_model(models / "images").n_clusters == 3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vectors", replace("subspaces", lambda a: a.astype(np.float16))),
        ("vectors", replace("subspaces", lambda a: a.astype(np.int64))),
        ("vectors", replace("subspaces", lambda a: a[:0])),
        ("vectors", replace("subspaces", lambda a: a[:, :, :0])),
        ("vectors", replace("subspace_dims", lambda a: a + 1)),
        ("vectors", replace("features.0.factor", lambda a: -a)),
        ("vectors", replace("features.0.shift", lambda a: a[:5])),
        ("vectors", replace("features.1.components", lambda a: a[:0])),
        ("vectors", replace("features.1.components", lambda a: a.astype(np.int64))),
        ("vectors", step(1, shape=[11])),
        ("vectors", set_in("fitted", "n_features_in", 11)),
        ("vectors", set_in("fitted", "input_shape", [3, 3])),
        ("vectors", set_in("fitted", "confidence", "high")),
        ("vectors", set_in("fitted", "chosen", 3)),
        ("vectors", set_in("fitted", "subspace_dim", None)),
        ("vectors", set_in("params", "batch_size", "x")),
        ("vectors", set_in("params", "refine", True)),
        ("vectors", set_in("params", "starts", -1)),
        ("vectors", set_in("features", "steps", [])),
        ("images", set_in("fitted", "input_shape", [1, 8, 9])),
        ("refined", replace("encoder.maps.0.weight", lambda a: a.astype(np.float16))),
        ("refined", replace("encoder.maps.0.weight", lambda a: np.full_like(a, np.nan))),
        ("refined", replace("scaling.factor", lambda a: np.full_like(a, np.inf))),
        ("refined", set_in("encoder", "latent_dim", 2**40)),
        ("refined", set_in("encoder", "latent_dim", "x")),
        ("refined", set_in("encoder", "channels", [])),
        ("refined", set_in("encoder", "shape", [1, 2**20, 2**20])),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(changed, name, change):
    refused(changed(name, change))
