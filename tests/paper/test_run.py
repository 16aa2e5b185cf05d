"""`python -m kscn_paper run`: every method on the digits, what it records, what a kill leaves."""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from kscn import data, metrics
from kscn.data.dataset import make_dataset
from kscn.errors import DataError, InputError
from kscn.estimators import defaults
from kscn_paper import environment, methods, runs, tables
from kscn_paper.__main__ import cli

DENSE = {
    "autoencoder_params": {"hidden": [8], "latent_dim": 4}, "layer_epochs": 1, "pretrain_epochs": 1,
}  # fmt: skip
CONVOLUTIONAL = {"autoencoder_params": {"channels": [4], "kernels": [3]}, "pretrain_epochs": 1}
AFFINITY = {
    "ssc": {"max_iter": 5},
    "lrr": {"max_iter": 5},
    "kssc": {"max_iter": 5, "max_rank": 40},
    "ssc-omp": {"n_nonzero": 3},
}
# Parameters by which a fit of the digits takes a moment.
SHORT = {
    "kscn-s": {"pretrain_epochs": 1, "epochs": 1, "n_init": 1},
    "kscn-g": {"pretrain_epochs": 1, "epochs": 1, "n_init": 1},
    "best": {"starts": 1, "refine": False},
    "k-subspaces": {"n_init": 1},
    "k-means": {"n_init": 1},
    "pca-ks": {"n_init": 1},
    "sae-km": DENSE | {"n_init": 1},
    "cae-km": CONVOLUTIONAL | {"n_init": 1},
    "dec": DENSE | {"max_iter": 1, "n_init": 1},
    "idec": DENSE | {"max_iter": 1, "n_init": 1},
    "dcn": DENSE | {"epochs": 1, "n_init": 1},
    "dcn-cae": CONVOLUTIONAL | {"epochs": 1, "n_init": 1},
    **AFFINITY,
    "dsc-net": {"pretrain_epochs": 1, "epochs": 1},
    "edesc": {"hidden": [20], "pretrain_epochs": 1, "epochs": 1, "n_init": 1},
    "k-fsc": {"subspace_dim": 3, "n_init": 1, "max_iter": 1},
    **{f"{name}-sae": DENSE | {"method_params": own} for name, own in AFFINITY.items()},
    **{f"{name}-cae": CONVOLUTIONAL | {"method_params": own} for name, own in AFFINITY.items()},
}

RESULTS = Path(__file__).parents[2] / "results" / "paper"
RUN = {
    "config": {"dataset": "digits", "method": "k-means", "preset": None, "parameters": {}},
    "seed": 0,
    "scores": {"acc": 0.5, "nmi": 0.5, "ari": 0.5},
    "time": "2026-01-01",
    "commit": "0123456",
}


@pytest.fixture
def run(tmp_path):
    """Call the command with a method, and parameters by which its fit is short."""

    def call(method, *options, dataset="digits", short=True):
        given = SHORT[method] if short else {}
        settings = [f"--set={name}={json.dumps(value)}" for name, value in given.items()]
        results = ["--results", str(tmp_path)]
        done = CliRunner().invoke(cli, ["run", method, dataset, *settings, *results, *options])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    call.path = tmp_path / runs.FILE
    return call


def test_every_row_of_the_tables_is_a_method():
    rows = {
        method
        for table in tables.published().values()
        for part in table.values()
        if isinstance(part, dict)
        for method in part
    }
    assert rows <= {*methods.NAMES}
    assert {*SHORT} == {*methods.NAMES} and len(methods.NAMES) == 4 + 15 + 8


@pytest.mark.filterwarnings("ignore")  # fits as short as these do not converge
@pytest.mark.parametrize("method", SHORT)
def test_every_method_runs_on_the_digits(run, method):
    done = run(method, "--seed", "3")
    assert done.exit_code == 0, done.output
    assert f"digits {method} seed 3   ACC " in done.output
    (record,) = runs.read(run.path)
    config = record["config"]
    assert (config["method"], config["samples"], record["seed"]) == (method, 1797, 3)
    assert config["preset"] == ("tuned" if method in ("kscn-s", "kscn-g") else None)
    assert config["set"] == SHORT[method]
    assert config["parameters"]["random_state"] == 3
    assert sum(record["sizes"]) == 1797
    assert record["seconds"] > 0 and record["versions"]["torch"]
    assert 0.05 < record["scores"]["acc"] < 1


def test_what_is_there_is_not_run_again(run):
    run("k-means", "--seed", "1")
    done = run("k-means", "--seeds", "2")
    assert [line.endswith("already there") for line in done.output.splitlines()] == [False, True]
    assert [record["seed"] for record in runs.read(run.path)] == [1, 0]
    # Other parameters are another run.
    assert "already there" not in run("k-means", "--seed", "1", "--set", "max_iter=7").output
    assert runs.read(run.path)[-1]["config"]["set"] == {"n_init": 1, "max_iter": 7}


@pytest.mark.parametrize(("preset", "method"), [("tuned", "kscn-g"), ("paper", "kscn-s")])
@pytest.mark.filterwarnings("ignore")
def test_a_run_is_what_its_parameters_say(run, preset, method):
    assert run(method, "--preset", preset).exit_code == 0
    (record,) = runs.read(run.path)
    parameters = record["config"]["parameters"]
    assert parameters["init"] == ("drawn" if preset == "tuned" else "dsc")
    assert parameters["update"] == ("svd" if method == "kscn-s" else "grassmann")
    # The same by hand.
    digits = data.load("digits")
    given = SHORT[method] | {"random_state": 0}
    model = methods.make(method, 10, dataset="digits", preset=preset, **given).fit(digits.samples)
    assert record["sizes"] == np.bincount(model.labels_, minlength=10).tolist()
    assert record["scores"] == metrics.scores(digits.labels, model.labels_)
    assert record["objective"] == pytest.approx(float(model.inertia_))


def test_the_settings_of_the_tables_are_those_of_the_presets():
    """What kscn-s and kscn-g were run with on MNIST and Fashion-MNIST is what they have now."""
    of_the_fit = {
        "random_state",
        "checkpoint_dir",
        "device",
        "restarts",
        "pretrained",
        "update_every",
    }
    checked = 0
    for record in runs.read(RESULTS / runs.FILE):
        config = record["config"]
        if config["preset"] is None:
            continue
        dataset, preset = config["dataset"], config["preset"]
        model = methods.make(config["method"], 10, dataset=dataset, preset=preset)
        found = defaults.kscn_settings((28, 28), config["samples"], 10, model.get_params())
        found = methods.plain(model.get_params() | found)
        found |= {"init": "dsc"} if found["init"] == "function" else {}
        for name, value in config["parameters"].items():
            assert name in of_the_fit or found[name] == value, (dataset, preset, name)
        checked += 1
    assert checked == 86


def test_labels_reach_only_the_scores(tmp_path, monkeypatch):
    digits, records = data.load("digits"), []
    for number, labels in enumerate((digits.labels, np.arange(1797) % 10)):
        opened = make_dataset(digits.samples, labels, "digits")
        monkeypatch.setattr(data, "load", lambda name, opened=opened: opened)
        path = tmp_path / str(number) / runs.FILE
        records.append(runs.run(path, "kscn-s", "digits", 0, given=SHORT["kscn-s"])[0])
    for name in ("config", "sizes", "objective", "iterations"):
        assert records[0][name] == records[1][name]
    assert records[0]["scores"] != records[1]["scores"]


def test_affinity_methods_have_a_network_that_knows_all_images(monkeypatch):
    opened = []
    monkeypatch.setattr(
        data, "load", lambda name: opened.append(name) or SimpleNamespace(samples=0)
    )
    assert methods.make("lrr-sae", 10, dataset="mnist-test").pretrain_on == 0
    assert opened == ["mnist"]
    assert methods.make("lrr-sae", 10, dataset="digits").pretrain_on is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["k-mean", "digits"], "'k-mean' is not one of"),
        (["k-means", "digits", "--seed", "-1"], "not in the range"),
        (["k-means", "digits", "--preset", "mine"], "'mine' is not one of"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments, words):
    done = CliRunner().invoke(cli, ["run", *arguments])
    assert done.exit_code == 2
    assert words in done.output


def test_faults_are_one_sentence(tmp_path):
    command = [sys.executable, "-m", "kscn_paper", "run", "k-means", "no-such-data"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: no-such-data does not exist")
    assert done.stderr.count("\n") == 1


def test_parameters_that_a_method_does_not_have_are_refused(run):
    with pytest.raises(InputError, match="'epochs' is not a parameter of k-means"):
        run("k-means", "--set", "epochs=3")
    assert not run.path.exists()


# The file ----------------------------------------------------------------------------------------


def test_a_line_cut_at_any_byte_costs_that_run_alone(tmp_path):
    path = tmp_path / runs.FILE
    runs.add(path, RUN)
    runs.add(path, RUN | {"seed": 1})
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) + 1):
        path.write_bytes(whole[:length])
        left = [run["seed"] for run in runs.read(path)]
        assert left == ([0, 1] if length == len(whole) else [0])
        runs.add(path, RUN | {"seed": 2})
        assert [run["seed"] for run in runs.read(path)] == [*left, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"config": []},
        {"config": RUN["config"] | {"method": 3}},
        {"seed": "0"},
        {"scores": RUN["scores"] | {"acc": 50.0}},
        {"scores": RUN["scores"] | {"ari": float("nan")}},
        {"time": 3},
    ],
)
def test_a_damaged_line_is_named(tmp_path, change):
    path = tmp_path / runs.FILE
    path.write_text(f"{json.dumps(RUN)}\n{json.dumps(RUN | change)}\n{json.dumps(RUN)}\n")
    with pytest.raises(DataError, match=r"line 2 of .*runs\.jsonl is damaged"):
        runs.read(path)


@pytest.mark.parametrize("line", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_damaged(tmp_path, line):
    path = tmp_path / runs.FILE
    path.write_bytes(line + b"\n")
    with pytest.raises(DataError, match=r"line 1 .* delete it"):
        runs.read(path)


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        runs.add(tmp_path / runs.FILE, RUN)


# The environment ---------------------------------------------------------------------------------


def test_the_peak_of_a_run_is_its_own():
    with mmap.mmap(-1, 160_000_000) as block:  # given back at once, whatever malloc keeps
        np.frombuffer(block, np.uint8)[:] = 1
        high = environment.peak_memory_mb()
    if not os.path.exists("/proc/self/clear_refs"):
        pytest.skip("the peak cannot be reset here")
    environment.reset_peak_memory()
    assert environment.peak_memory_mb() < high - 100


def test_a_commit_is_dirty_by_its_code_and_not_by_results(monkeypatch, tmp_path):
    package = tmp_path / "src" / "kscn"
    package.mkdir(parents=True)
    code, result = package / "__init__.py", tmp_path / "results.json"
    code.write_text("x = 1\n")
    result.write_text("{}")
    monkeypatch.setattr(environment.kscn, "__file__", str(code))
    assert environment.commit() is None  # no checkout yet
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    clean = environment.commit()
    assert clean and "dirty" not in clean
    result.write_text("{1}")
    assert environment.commit() == clean
    (tmp_path / "src" / "kscn_paper.py").write_text("x = 2\n")
    assert environment.commit() == f"{clean}-dirty"
