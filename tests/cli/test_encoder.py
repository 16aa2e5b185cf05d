"""Runs with an encoder: raw images in all commands, pictures on pages, and no other encoder."""

import json
import os
import shutil

import numpy as np
import pytest
import tinyencoder

from kscn import metrics
from kscn.runs.directory import read_run

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("own_cache")
IMAGES, KINDS = tinyencoder.photographs(60)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with photographs of different sizes, tiny.onnx and other.onnx."""
    folder = tmp_path_factory.mktemp("encoded")
    tinyencoder.write_folder(folder / "photos", IMAGES)
    tinyencoder.write(folder / "tiny.onnx")
    tinyencoder.write(folder / "other.onnx", seed=7)
    np.save(folder / "images.npy", IMAGES)
    np.save(folder / "kinds.npy", KINDS)
    return folder


@pytest.fixture(scope="module")
def own_cache(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSCN_CACHE", str(place / "cache"))
        yield


@pytest.fixture(scope="module")
def run(place, own_cache, kscn):
    """A run on the folder; do not write to it."""
    args = ("fit", place / "photos", "-k", 3, "--encoder", place / "tiny.onnx", "--seed", 0)
    result = kscn(*args, "-o", place / "run")
    assert result.exit_code == 0, result.output
    assert "photos: 60 images in 3 clusters" in result.stdout
    assert "encoder    tiny.onnx, sha256 " in result.stdout
    assert not result.stderr  # nothing about photographs without an encoder
    return place / "run"


def test_the_run_records_its_encoder_and_holds_no_copy(run, place):
    config = read_run(run).config
    assert config["encoder"]["name"] == str(place / "tiny.onnx")
    assert len(config["encoder"]["sha256"]) == 64
    assert not (run / "encoder").exists()
    assert metrics.clustering_accuracy(KINDS, read_run(run).labels()) == 1
    assert (run / "labels.csv").read_text().startswith("file,label\nphoto000.png,")


def test_predict_and_evaluate_take_raw_images(run, place, kscn, tmp_path):
    assert kscn("predict", run, place / "photos", "-o", tmp_path / "y.csv").exit_code == 0
    assert (tmp_path / "y.csv").read_bytes() == (run / "labels.csv").read_bytes()
    assert kscn("predict", run, place / "images.npy", "-o", tmp_path / "a.csv").exit_code == 0
    result = kscn("evaluate", run, "--labels", place / "kinds.npy", "--json")
    assert json.loads(result.stdout)["acc"] == 1


def test_report_and_explorer_show_pictures(run, place, kscn, tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    report = kscn("report", run, "-o", tmp_path / "page.html")
    assert report.exit_code == 0, report.output
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/png") > 30 and "tiny.onnx, sha256" in page
    explorers = []
    monkeypatch.setattr(
        "kscn.web.exploring.explorer_app", lambda made, token: explorers.append(made)
    )
    shown = []
    monkeypatch.setattr(
        "kscn.web.server.run", lambda *args: shown.append(explorers[0].members(0, "typical", 0, 9))
    )
    result = kscn("explore", shutil.copytree(run, tmp_path / "run"))
    assert result.exit_code == 0, result.output
    members = shown[0]["members"]
    assert len(members) == 9 and all("picture" in member for member in members)


def test_the_service_labels_files_of_any_size_as_the_run_does(run, place, kscn, monkeypatch):
    testclient = pytest.importorskip("fastapi.testclient")
    apps = []
    monkeypatch.setattr("kscn.web.server.run", lambda app, listening: apps.append(app))
    assert kscn("serve", run, "--port", 0).exit_code == 0
    files = sorted((place / "photos").iterdir())
    labels = read_run(run).labels().tolist()
    with testclient.TestClient(apps[0], base_url="http://127.0.0.1") as client:
        form = [("files", (file.name, file.read_bytes(), "image/png")) for file in files]
        answer = client.post("/predict", files=form).json()
        assert [one["label"] for one in answer["predictions"]] == labels
        kind = {"Content-Type": "image/png"}
        alone = client.post("/predict", content=files[7].read_bytes(), headers=kind).json()
        assert alone["predictions"] == [answer["predictions"][7]]


def test_export_joins_encoder_and_assignment(run, place, kscn, tmp_path):
    from kscn.features.encoders import load_encoder

    result = kscn("export", run, tmp_path / "joined.onnx")
    assert result.exit_code == 0, result.output
    assert "input   images (n, 3, 16, 16), RGB, as the encoder takes them" in result.stdout
    assert "pixels  (value / 255 - [0.485, 0.456, 0.406])" in result.stdout
    prepared = load_encoder(place / "tiny.onnx").prepare(place / "photos")
    session = onnxruntime.InferenceSession(tmp_path / "joined.onnx")
    found = session.run(["label"], {"images": prepared})[0]
    np.testing.assert_array_equal(found, read_run(run).labels())


def test_another_or_a_missing_encoder_is_refused_in_one_sentence(
    run, place, kscn, one_sentence, tmp_path
):
    other, gone = place / "other.onnx", place / "gone.onnx"
    data = place / "photos"
    copy = shutil.copytree(run, tmp_path / "run")
    for command in (
        ("predict", copy, data, "-o", tmp_path / "y.csv"),
        ("report", copy, "-o", tmp_path / "page.html"),
        ("explore", copy),
        ("serve", copy, "--port", 0),
        ("export", copy, tmp_path / "m.onnx"),
    ):
        words = one_sentence(kscn(*command, "--encoder", other))
        assert "is not the encoder that this model was fitted with" in words
        assert "no longer at" in one_sentence(kscn(*command, "--encoder", gone))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_an_encoder_that_was_moved_is_named_and_one_that_changed_refused(
    place, kscn, one_sentence, tmp_path
):
    file = shutil.copy(place / "tiny.onnx", tmp_path / "mine.onnx")
    fit = ("fit", place / "photos", "-k", 3, "--encoder", file, "--seed", 0)
    assert kscn(*fit, "-o", tmp_path / "run").exit_code == 0
    predict = ("predict", tmp_path / "run", place / "photos", "-o", tmp_path / "y.csv")
    shutil.copy(place / "other.onnx", file)
    assert "is not the encoder" in one_sentence(kscn(*predict))
    os.unlink(file)
    assert "say where it is by --encoder" in one_sentence(kscn(*predict))
    assert kscn(*predict, "--encoder", place / "tiny.onnx").exit_code == 0


def test_mistakes_get_one_sentence(place, kscn, finished, files, one_sentence, tmp_path):
    fit = ("fit", place / "photos", "-k", 3, "-o", tmp_path / "run")
    tiny = ("--encoder", place / "tiny.onnx")
    for args, words in (
        ((*fit, "--encoder", "model.pth"), "give an .onnx file"),
        ((*fit, "--encoder", tmp_path / "none.onnx"), "does not exist"),
        ((*fit, "--encoder", "timm:resnet50"), "needs the package timm"),
        ((*fit, *tiny, "--size", 32), "--size cannot be used with --encoder"),
        ((*fit, *tiny, "--method", "k-subspaces"), "--encoder cannot be used with the method"),
        ((*fit, *tiny, "--refine"), "refine=True cannot be used with an encoder"),
        (("fit", files / "x.npy", *fit[2:], *tiny), "cannot take for an image"),
        (("predict", finished, files / "x.npy", "-o", tmp_path / "y.csv", *tiny),
         "was fitted without an encoder"),
    ):  # fmt: skip
        assert words in one_sentence(kscn(*args))
    assert not list(tmp_path.iterdir())


# A fit that is stopped when some of the images have gone through the encoder.
STOPPED = """
import os
from kscn.features.encoders import encoder
run, count = encoder.Encoder.run, [0]
def stopped(self, batch):
    count[0] += len(batch)
    if count[0] > 32:
        os.kill(os.getpid(), int(os.environ["WITH"]))
    return run(self, batch)
encoder.Encoder.run = stopped
"""


@pytest.mark.parametrize("signal", [9, 15])
def test_a_fit_that_was_killed_or_stopped_while_embedding_goes_on(
    signal, run, place, kscn, start, one_sentence, tmp_path, monkeypatch
):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WITH", str(signal))
    file, stopped = shutil.copy(place / "tiny.onnx", tmp_path / "mine.onnx"), tmp_path / "run"
    fit = ("fit", place / "photos", "-k", 3, "--encoder", file, "--seed", 0, "-o", stopped)
    process = start(*fit, before=STOPPED)
    told = process.communicate(timeout=120)[1]
    assert process.returncode != 0
    if signal == 15:
        assert "go on with `kscn fit --resume" in told
    assert (tmp_path / "cache" / "embeddings.sqlite").exists()
    other = ("fit", "--resume", stopped, "--encoder", place / "other.onnx")
    assert "is not the encoder" in one_sentence(kscn(*other))
    moved = shutil.move(file, tmp_path / "moved.onnx")
    result = kscn("fit", "--resume", stopped, "--encoder", moved)
    assert result.exit_code == 0, result.output
    assert (stopped / "labels.csv").read_bytes() == (run / "labels.csv").read_bytes()
