"""`kscn fit`: what it writes, what it refuses, and what survives when it is stopped."""

import json
import os
import shutil
import tomllib

import numpy as np
import pytest

import kscn as package

LINEAR = ("--method", "k-subspaces")
NAMES = {"config.toml", "history.jsonl", "labels.csv", "model"}
QUICK = (*LINEAR, "--subspace-dim", 2, "--n-init", 1)  # where the result does not matter


def labels_in(run):
    rows = [line.split(",") for line in (run / "labels.csv").read_text().splitlines()]
    assert rows[0] == ["index", "label"]
    assert [int(index) for index, _ in rows[1:]] == list(range(len(rows) - 1))
    return np.array([int(label) for _, label in rows[1:]])


# --- what is written --------------------------------------------------------------------------


def test_a_run_holds_config_history_labels_and_model(finished, planes):
    assert set(os.listdir(finished)) == NAMES
    samples, true = planes
    assert labels_in(finished).tolist() == true.tolist()  # labels are in the order of size
    model = package.load_model(finished / "model")
    assert model.predict(samples).tolist() == true.tolist()


def test_config_says_how_to_repeat_the_run(finished, files):
    config = tomllib.loads((finished / "config.toml").read_text())
    assert config["run"]["method"] == "k-subspaces"
    assert config["data"]["source"] == str(files / "x.npy")
    assert (config["data"]["samples"], config["data"]["shape"]) == (120, [8])
    assert config["parameters"]["n_clusters"] == 3
    assert config["parameters"]["subspace_dim"] == 2
    assert config["parameters"]["random_state"] == 1


def test_history_has_a_line_per_record_and_ends_with_the_result(finished):
    records = [json.loads(line) for line in (finished / "history.jsonl").open()]
    assert {record["stage"] for record in records[:-1]} <= {"search", "fit"}
    assert records[-1]["stage"] == "done"
    assert records[-1]["sizes"] == [60, 40, 20]
    assert records[-1]["dims"] == [2, 2, 2]
    assert records[-1]["scores"] is None


def test_the_summary_shows_sizes_and_where_to_go_on(kscn, files, tmp_path):
    linear = (*LINEAR, "--subspace-dim", 2)
    result = kscn("fit", files / "xy.npz", "-k", 3, "-o", tmp_path / "run", *linear)
    assert result.exit_code == 0, result.output
    assert "120 samples of 8 features in 3 subspaces of dimension 2" in result.output
    assert "ACC 1.0000   NMI 1.0000   ARI 1.0000" in result.output
    assert f"kscn evaluate {tmp_path / 'run'}" in result.output
    assert result.stderr == ""  # no progress where there is no terminal


def test_a_drawn_seed_is_recorded_and_repeats_the_run(kscn, files, tmp_path):
    assert kscn("fit", files / "x.npy", "-k", 5, "-o", tmp_path / "a", *QUICK).exit_code == 0
    config = tomllib.loads((tmp_path / "a" / "config.toml").read_text())
    seed = config["parameters"]["random_state"]
    again = kscn("fit", files / "x.npy", "-k", 5, "-o", tmp_path / "b", "--seed", seed, *QUICK)
    assert again.exit_code == 0
    assert labels_in(tmp_path / "a").tolist() == labels_in(tmp_path / "b").tolist()


def test_every_option_reaches_the_estimator(kscn, files, tmp_path):
    options = "--affine --trim 0.1 --init k-means --n-init 3 --max-iter 7 --batch-size 50 --seed 4"
    result = kscn("fit", files / "x.npy", "-k", 3, "-o", tmp_path / "r", *LINEAR, "--subspace-dim",
                  "1,2,1", *options.split())  # fmt: skip
    assert result.exit_code == 0, result.output
    parameters = tomllib.loads((tmp_path / "r" / "config.toml").read_text())["parameters"]
    expected = {
        "n_clusters": 3, "subspace_dim": [1, 2, 1], "affine": True, "trim": 0.1, "init": "k-means",
        "n_init": 3, "max_iter": 7, "batch_size": 50, "random_state": 4,
    }  # fmt: skip
    assert expected.items() <= parameters.items()


def test_labels_in_the_file_do_not_change_the_result(kscn, planes, tmp_path):
    samples, labels = planes
    found = []
    for name, y in (("true", labels), ("false", labels[::-1])):
        np.savez(tmp_path / f"{name}.npz", x=samples, y=y)
        run = tmp_path / name
        assert (
            kscn("fit", tmp_path / f"{name}.npz", "-k", 4, "-o", run, "--seed", 0, *QUICK).exit_code
            == 0
        )
        found.append(labels_in(run).tolist())
    assert found[0] == found[1]


def test_labels_that_cannot_score_do_not_cost_the_fit(kscn, planes, tmp_path):
    samples, labels = planes
    np.savez(tmp_path / "x.npz", x=samples, y=np.full_like(labels, -1))
    result = kscn("fit", tmp_path / "x.npz", "-k", 3, "-o", tmp_path / "run", *QUICK)
    assert result.exit_code == 0, result.output
    assert "ACC" not in result.output


# --- where it is written ----------------------------------------------------------------------


def test_an_older_run_is_replaced_only_when_asked(one_sentence, kscn, files, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    before = (run / "labels.csv").read_text()
    fit = ("fit", files / "x.npy", "-k", 2, "-o", run)
    assert "add --overwrite" in one_sentence(kscn(*fit))
    # What is refused when the fit begins costs nothing either.
    assert "n_init" in one_sentence(kscn(*fit, *LINEAR, "--n-init", 0, "--overwrite"))
    assert (run / "labels.csv").read_text() == before
    assert kscn("info", run).exit_code == 0
    result = kscn(*fit, *QUICK, "--overwrite")
    assert result.exit_code == 0
    assert f"the run that was in {run} is gone" in result.stderr
    assert (run / "labels.csv").read_text() != before
    assert set(os.listdir(run)) == NAMES
    assert package.load_model(run / "model").n_clusters == 2


def test_files_that_are_no_run_are_never_replaced(one_sentence, kscn, files, tmp_path):
    (tmp_path / "labels.csv").write_text("mine")
    fit = ("fit", files / "x.npy", "-k", 2, "-o", tmp_path)
    assert "not empty" in one_sentence(kscn(*fit))
    assert "no kscn run" in one_sentence(kscn(*fit, "--overwrite"))
    assert (tmp_path / "labels.csv").read_text() == "mine"


def test_notes_kept_in_a_run_survive_its_replacement(kscn, files, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "notes.txt").write_text("mine")
    assert kscn("fit", files / "x.npy", "-k", 2, "-o", run, *QUICK, "--overwrite").exit_code == 0
    assert (run / "notes.txt").read_text() == "mine"


def save(path, array):
    np.save(path, array)
    return path


@pytest.mark.parametrize(
    ("samples", "k"),
    [
        (np.random.default_rng(0).standard_normal((30, 4)), 1),  # one cluster
        (np.repeat(np.random.default_rng(0).standard_normal((4, 5)), 10, axis=0), 3),  # duplicates
    ],
)
@pytest.mark.parametrize("method", [(), (*LINEAR, "--subspace-dim", 1)])
def test_odd_but_sound_data_is_clustered(kscn, tmp_path, samples, k, method):
    save(tmp_path / "x.npy", samples)
    result = kscn("fit", tmp_path / "x.npy", "-k", k, "-o", tmp_path / "run", *method)
    assert result.exit_code == 0, result.output
    assert set(labels_in(tmp_path / "run")) <= set(range(k))
