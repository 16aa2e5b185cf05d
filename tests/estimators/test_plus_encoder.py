"""`KSCNPlus` with an encoder: images in, the labels of their embeddings out."""

import shutil

import numpy as np
import pytest
import tinyencoder
import torch
from sklearn.base import clone

from kscn import KSCNPlus, load_model, metrics
from kscn.errors import InputError, ModelFileError
from kscn.features.encoders import Encoder, load_encoder

pytest.importorskip("onnxruntime")
IMAGES, KINDS = tinyencoder.photographs(60)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path):
    return tinyencoder.write(tmp_path / "tiny.onnx")


def fitted(encoder, images=IMAGES, **settings):
    return KSCNPlus(3, encoder=encoder, starts=1, random_state=0, **settings).fit(images)


def test_images_are_clustered_by_their_embeddings(file):
    model = fitted(file)
    assert metrics.clustering_accuracy(KINDS, model.labels_) == 1
    vectors = load_encoder(file).embed(IMAGES)
    plain = KSCNPlus(3, starts=1, random_state=0).fit(vectors)
    assert (plain.labels_ == model.labels_).all()
    assert (model.on_embeddings().predict(vectors) == model.labels_).all()
    assert model.n_features_in_ == tinyencoder.DIM


def test_predict_on_the_training_images_is_labels(file, tmp_path):
    folder = tinyencoder.write_folder(tmp_path / "photos", IMAGES)
    model = fitted(str(file), folder)
    assert (model.predict(folder) == model.labels_).all()
    shutil.rmtree(tmp_path / "cache")
    assert (model.predict(folder) == model.labels_).all()
    assert model.predict_proba(IMAGES[:4]).shape == (4, 3)
    assert model.transform(IMAGES[:1]).shape[0] == 1
    again = fitted(file, folder)
    assert (again.labels_ == model.labels_).all()


def test_a_module_a_path_and_an_encoder_will_do_and_can_be_cloned(file):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 8, stride=8), torch.nn.ReLU())
    for encoder in (module, load_encoder(module, size=16), load_encoder(file), file):
        model = clone(KSCNPlus(3, encoder=encoder, starts=1, random_state=0)).fit(IMAGES)
        assert metrics.clustering_accuracy(KINDS, model.labels_) == 1


def test_a_saved_model_finds_its_encoder_or_says_which_it_was(file, tmp_path):
    model = fitted(file)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.encoder == str(file) and loaded.image_encoder_ is None
    assert (loaded.predict(IMAGES) == model.labels_).all()
    moved = file.rename(tmp_path / "moved.onnx")
    loaded = load_model(tmp_path / "model")
    with pytest.raises(InputError, match=r"is no longer at .*tiny\.onnx; say where it is"):
        loaded.predict(IMAGES)
    assert (loaded.set_params(encoder=moved).predict(IMAGES) == model.labels_).all()
    other = tinyencoder.write(tmp_path / "other.onnx", seed=5)
    with pytest.raises(InputError, match="is not the encoder that this model was fitted with"):
        load_model(tmp_path / "model").set_params(encoder=other).predict(IMAGES)


def test_what_stands_beside_the_encoder_later_changes_nothing(file, tmp_path):
    model = fitted(file)
    model.save(tmp_path / "model")
    file.with_suffix(".toml").write_text('interpolation = "nearest"\nmean = [0, 0, 0]\n')
    loaded = load_model(tmp_path / "model")
    assert (loaded.transform(IMAGES) == model.transform(IMAGES)).all()


def test_a_module_is_asked_for_again(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Conv2d(3, 6, 8, stride=8)
    model = fitted(load_encoder(module, size=16))
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    with pytest.raises(InputError, match=r"fitted with the encoder Conv2d .*set_params"):
        loaded.predict(IMAGES)
    assert (loaded.set_params(encoder=module).predict(IMAGES) == model.labels_).all()


def test_what_is_set_after_a_fit_changes_nothing(file, tmp_path):
    model = fitted(file)
    other = tinyencoder.write(tmp_path / "other.onnx", seed=5)
    assert (model.set_params(encoder=other).predict(IMAGES) == model.labels_).all()
    assert (model.fit(IMAGES).image_encoder_.name) == str(other)
    model.set_params(encoder=None).fit(IMAGES.transpose(0, 3, 1, 2))
    assert model.image_encoder_ is None and model.n_features_in_ == 24 * 24 * 3


def test_bad_input_is_refused_before_the_images_are_embedded(file, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("embedded")

    monkeypatch.setattr(Encoder, "embed", never)
    for settings, images, words in (
        ({"n_clusters": 61}, IMAGES, "n_samples=60 should be >= n_clusters=61"),
        ({"refine": True}, IMAGES, "refine=True cannot be used with an encoder"),
        ({"callbacks": [1]}, IMAGES, "callbacks=.* must be"),
        ({}, IMAGES.reshape(60, -1), "cannot take for an image"),
        ({"encoder": "model.pth"}, IMAGES, r"give an \.onnx file"),
    ):
        given = {"n_clusters": 3, "encoder": file} | settings
        with pytest.raises(InputError, match=words):
            KSCNPlus(**given).fit(images)


def test_vectors_are_refused_where_images_are_expected(file):
    model = fitted(file)
    with pytest.raises(InputError, match="cannot take for an image"):
        model.predict(np.zeros((3, tinyencoder.DIM)))


def test_callbacks_hear_of_progress_and_an_interrupt_keeps_what_was_computed(file, tmp_path):
    images, _ = tinyencoder.photographs(120)  # in batches of 32
    told = []

    def hear(model, record):
        told.append(record)
        if record["stage"] == "embed" and record["round"] >= 64:
            raise KeyboardInterrupt

    settings = {"checkpoint_dir": tmp_path / "states", "callbacks": [hear]}
    with pytest.raises(KeyboardInterrupt):
        fitted(file, images, **settings)
    assert [r["round"] for r in told] == [32, 64] and told[0]["rounds"] == 120
    settings["callbacks"] = [lambda model, record: told.append(record)]
    model = fitted(file, images, **settings)
    assert told[2]["round"] == 96  # 64 were in the cache
    assert (model.labels_ == fitted(file, images).labels_).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda params: params["params"].update(encoder=3),
        lambda params: params["fitted"].update(image_encoder=3),
        lambda params: params["fitted"]["image_encoder"].pop("sha256"),
        lambda params: params["fitted"]["image_encoder"].update(name=None),
        lambda params: params["fitted"]["image_encoder"].update(preprocessing={"size": -1}),
        lambda params: params["fitted"]["image_encoder"].update(preprocessing=[]),
    ],
)
def test_a_model_file_that_says_something_else_is_refused(change, file, tmp_path):
    from kscn.modelfile import read_model, write_model

    fitted(file).save(tmp_path / "model")
    found = read_model(tmp_path / "model")
    change(found.params)
    write_model(tmp_path / "model", found.kind, found.params, found.tensors)
    with pytest.raises(ModelFileError, match="model"):
        load_model(tmp_path / "model")
