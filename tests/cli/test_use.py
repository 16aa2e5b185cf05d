"""The commands that use a run: predict, evaluate, info; and the data sets by name."""

import json
import shutil

import numpy as np
import pytest

from kscn.atomicfile import atomic_file
from kscn.runs import table as label_files

# --- predict ----------------------------------------------------------------------------------


def test_predict_writes_a_label_for_every_sample(kscn, files, finished, planes, tmp_path):
    np.save(tmp_path / "new.npy", planes[0][::-1])
    result = kscn("predict", finished, tmp_path / "new.npy", "-o", tmp_path / "labels.csv")
    assert result.exit_code == 0, result.output
    assert f"wrote 120 labels to {tmp_path / 'labels.csv'}" in result.output
    rows = (tmp_path / "labels.csv").read_text().splitlines()
    assert rows[0] == "index,label"
    assert rows[1:] == [f"{i},{label}" for i, label in enumerate(planes[1][::-1])]


def test_a_damaged_model_is_named(one_sentence, kscn, files, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    tensors = run / "model" / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-4])
    for call in (["predict", run, files / "x.npy", "-o", tmp_path / "l.csv"], ["info", run]):
        assert "model.safetensors is cut off" in one_sentence(kscn(*call))


# --- evaluate ---------------------------------------------------------------------------------


@pytest.fixture
def label_file(files, planes, tmp_path):
    """Labels in every form that --labels takes, by name."""
    true = planes[1].tolist()
    words = ["abc"[label] for label in true]
    (tmp_path / "y.txt").write_text("\n".join(map(str, true)))
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "y.csv").write_text(
        "file,class\n" + "".join(f"i{i},{y}\n" for i, y in enumerate(true))
    )
    (tmp_path / "words.csv").write_text("\ufeffname\n" + "\n".join(words), encoding="utf-8")
    shutil.copy(files / "y.npy", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["y.npy", "y.txt", "y.csv", "words.txt", "words.csv"])
def test_evaluate_reads_labels_in_all_forms(kscn, finished, label_file, name):
    result = kscn("evaluate", finished, "--labels", label_file / name)
    assert result.exit_code == 0, result.output
    assert "ACC 1.0000   NMI 1.0000   ARI 1.0000   (120 samples)" in result.output
    assert [line.split()[1:] for line in result.output.splitlines()[3:]] == [
        ["[60]", ".", "."],
        [".", "[40]", "."],
        [".", ".", "[20]"],
    ]


def test_evaluate_as_json_with_labels_of_a_data_set(kscn, files, finished):
    result = kscn("evaluate", finished, "--data", files / "xy.npz", "--json")
    scores = json.loads(result.output)
    assert (scores["acc"], scores["nmi"], scores["ari"]) == (1.0, 1.0, 1.0)
    assert scores["samples"] == 120
    assert scores["confusion"] == {
        "classes": [0, 1, 2],
        "clusters": [0, 1, 2],
        "counts": [[60, 0, 0], [0, 40, 0], [0, 0, 20]],
    }


def test_evaluate_finds_the_labels_that_came_with_the_data(kscn, files, tmp_path):
    assert (
        kscn(
            "fit", files / "xy.npz", "-k", 3, "-o", tmp_path / "r", "--method", "k-subspaces"
        ).exit_code
        == 0
    )
    assert "ACC" in kscn("evaluate", tmp_path / "r").output


def test_labels_are_read_as_they_were_written(tmp_path):
    labels = np.arange(23) % 5
    with atomic_file(tmp_path / "l.csv") as file:
        label_files.write_labels(file, labels)
    assert label_files.read_labels(tmp_path / "l.csv", 23).tolist() == labels.tolist()


# --- info --------------------------------------------------------------------------


def test_info_shows_settings_and_result(kscn, files, finished):
    result = kscn("info", finished)
    assert result.exit_code == 0, result.output
    for words in (
        "120 samples of 8 features in 3 subspaces",
        "intact",
        str(files / "x.npy"),
        "random_state",
    ):
        assert words in result.output


# --- data -------------------------------------------------------------------------------------


def test_data_list_names_every_data_set(kscn, monkeypatch, tmp_path):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path))
    output = kscn("data", "list").output
    for name in ("digits", "mnist", "fashion-mnist"):
        assert f"\n  {name} " in output


def test_data_get_prints_where_it_is(one_sentence, kscn):
    assert kscn("data", "get", "digits").output.strip().endswith("digits.csv.gz")
    assert "nonsense" in one_sentence(kscn("data", "get", "nonsense"))


def test_images_of_another_size_than_the_fit_s_are_told(kscn, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.random((40, 16, 16)))
    np.save(tmp_path / "new.npy", rng.random((5, 10, 10)))
    quick = ("--method", "kscn-s", "--pretrain-epochs", 1, "--epochs", 1, "--n-init", 1)
    result = kscn("fit", tmp_path / "x.npy", "-k", 2, "-o", tmp_path / "run", *quick)
    assert result.exit_code == 0, result.output
    refused = kscn("predict", tmp_path / "run", tmp_path / "new.npy", "-o", tmp_path / "out.csv")
    assert refused.exit_code == 2
    assert "(10, 10)" in refused.output
    assert not (tmp_path / "out.csv").exists()
