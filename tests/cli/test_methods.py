"""`kscn fit` with every method: which options it takes, presets, what a run records, progress."""

import json
import os
import tomllib

import numpy as np
import pytest
from sklearn.datasets import load_iris

import kscn as package
from kscn.cli import fit as fitting
from kscn.cli.progress import FitProgress
from kscn.data import load
from kscn.estimators import defaults, methods, presets
from kscn.runs.directory import read_run

QUICK = ("--method", "kscn-s", "--pretrain-epochs", 2, "--epochs", 2, "--n-init", 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with ninety images of 8 x 8 on three planes, x.npy and xy.npz."""
    directory = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.standard_normal((3, 64, 2)))[0]
    labels = np.repeat([0, 1, 2], 30)
    images = np.einsum("nij,nj->ni", bases[labels], rng.standard_normal((90, 2)))
    images = images.reshape(90, 8, 8).astype(np.float32)
    np.save(directory / "x.npy", images)
    np.savez(directory / "xy.npz", x=images, y=labels)
    return directory


@pytest.fixture
def fit(kscn, made, tmp_path):
    """Fit the images: fit("--seed", 1) -> (result, run directory)."""

    def call(*options, data="x.npy"):
        result = kscn("fit", made / data, "-k", 3, "-o", tmp_path / "run", *options)
        return result, tmp_path / "run"

    return call


def config_of(run):
    return tomllib.loads((run / "config.toml").read_text())


def test_the_command_knows_the_methods_and_presets_that_there_are():
    assert set(fitting.METHODS) == set(methods.NAMES)
    assert list(fitting.PRESETS) == list(presets.PRESETS)
    assert (fitting.BEST, fitting.PRESETS[0]) == (methods.DEFAULT, presets.DEFAULT)


# --- deep methods -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deep(kscn, made, tmp_path_factory):
    """What `kscn fit` says of the images with kscn-s, and the run; do not write to it."""
    run = tmp_path_factory.mktemp("deep") / "run"
    result = kscn("fit", made / "xy.npz", "-k", 3, "-o", run, *QUICK, "--seed", 1)
    assert result.exit_code == 0, result.output
    return result.output, run


def test_kscn_s_clusters_images(deep, made, kscn, tmp_path):
    told, run = deep
    assert "90 samples of 8 x 8 in 3 subspaces of dimension" in told
    assert "method     kscn-s, preset tuned" in told and "ACC" in told
    assert set(os.listdir(run)) == {"config.toml", "history.jsonl", "labels.csv", "model"}
    model = package.load_model(run / "model")
    assert isinstance(model, package.KSCN)
    assert model.predict(np.load(made / "x.npy")).tolist() == read_run(run).labels().tolist()
    assert "KSCN" in kscn("info", run).output
    result = kscn("predict", run, made / "x.npy", "-o", tmp_path / "labels.csv")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "labels.csv").read_bytes() == (run / "labels.csv").read_bytes()


def test_the_config_repeats_the_run(deep, made):
    run = deep[1]
    parameters = config_of(run)["parameters"]
    assert parameters["autoencoder_params"]["channels"]  # a table in a table
    model = package.KSCN(**parameters).fit(np.load(made / "x.npy"))
    assert model.labels_.tolist() == read_run(run).labels().tolist()


def test_the_history_tells_every_stage(deep):
    records = [json.loads(line) for line in (deep[1] / "history.jsonl").open()]
    stages = list(dict.fromkeys(record["stage"] for record in records))
    assert stages[0] == "pretrain"
    assert stages[-2:] == ["fit", "done"]
    assert [record["epoch"] for record in records if record["stage"] == "pretrain"] == [1, 2]
    assert sum(records[-2]["sizes"]) == 90


@pytest.mark.parametrize("preset", ["tuned", "paper"])
@pytest.mark.parametrize("method", ["kscn-s", "kscn-g"])
def test_what_was_not_given_is_that_of_the_preset(made, method, preset):
    loaded = load(str(made / "x.npy"))
    given = {"epochs": 3, "random_state": 0}
    model = fitting.new_model(loaded, 3, method, given | {"preset": preset})
    update = {"update": "svd" if method == "kscn-s" else "grassmann"}
    expected = given | update | {"n_clusters": 3, "preset": preset}
    settings = defaults.kscn_settings((8, 8), 90, 3, expected) | given | update
    assert settings.items() <= model.get_params().items()
    if preset == "tuned":
        assert fitting.new_model(loaded, 3, method, given).get_params() == model.get_params()


def test_options_count_more_than_the_preset(fit):
    options = "--method kscn-s --epochs 1 --pretrain-epochs 0 --weight 0 --trim 0 --n-init 2"
    more = "--learning-rate 0.01 --init k-means --subspace-dim 1 --batch-size 50"
    result, run = fit(*options.split(), *more.split())
    assert result.exit_code == 0, result.output
    expected = {
        "epochs": 1, "pretrain_epochs": 0, "weight": 0.0, "trim": 0.0, "learning_rate": 0.01,
        "init": "k-means", "subspace_dim": 1, "batch_size": 50, "n_init": 2,
    }  # fmt: skip
    assert expected.items() <= config_of(run)["parameters"].items()


# --- the default --------------------------------------------------------------------------------


def test_fit_info_and_report_tell_how_sure_the_clusters_are(kscn, tmp_path):
    run = tmp_path / "run"
    np.savetxt(tmp_path / "iris.csv", load_iris().data, delimiter=",")
    told = kscn("fit", tmp_path / "iris.csv", "-k", 3, "-o", run, "--seed", 0)
    assert told.exit_code == 0, told.output
    assert config_of(run)["run"]["method"] == "best"
    choice = read_run(run).result["chosen"]
    assert len(choice["tried"]) == 10 < choice["candidates"]
    for output in (told.output, kscn("info", run).output):
        words = " ".join(output.split())
        assert "150 samples of 4 features in 3 clusters" in words
        assert f"find back to their cluster: {choice['consistency']:.2f} of 1" in words
    assert kscn("report", run).exit_code == 0
    page = (run / "report.html").read_text()
    assert f"find back to their cluster: {choice['consistency']:.2f} of 1" in page


# --- which options go with which method -----------------------------------------------------------


def test_an_option_that_the_method_does_not_take_is_refused(one_sentence, fit):
    for method, option, other in (
        ("kscn-s", "--affine", "k-subspaces"),
        ("k-subspaces", "--refine", "best"),
        ("best", "--affine", "k-subspaces"),
    ):
        result, run = fit("--method", method, option)
        words = f"{option} cannot be used with the method {method}; add --method {other}"
        assert words in one_sentence(result)
        assert not run.exists()


def test_what_no_method_takes_together_is_refused(one_sentence, fit):
    result, _ = fit("--weight", 2, "--affine")
    assert "no method takes all" in one_sentence(result)
    for option in (("--method", "magic"), ("--preset", "papr")):
        result, _ = fit(*option)
        assert result.exit_code == 2 and "is not one of" in result.stderr


# --- config and progress ------------------------------------------------------------------------


def test_progress_shows_every_stage_with_its_own_total():
    seen = []
    with FitProgress() as progress:
        for record in (
            {"stage": "pretrain", "epoch": 3, "epochs": 20, "reconstruction": 1.25},
            {"stage": "search", "round": 2, "rounds": 5, "starts": 8, "objective": 10.0},
            {"stage": "start", "iteration": 4, "max_iter": 100, "objective": 9.0, "changed": 0.5},
            {"stage": "fit", "epoch": 1, "epochs": 7, "objective": 8.0, "changed": 0.25},
            {"stage": "of one's own", "epoch": 1, "epochs": 2},
            {"stage": "nothing to count"},
        ):
            progress(None, record)
            (task,) = progress.tasks
            seen.append((task.description, task.completed, task.total, task.fields["note"]))
    assert seen == [
        ("pretraining", 3, 20, "error 1.25"),
        ("trying starts", 2, 5, "objective 10"),
        ("starting", 4, 100, "objective 9  50.0% moved"),
        ("fitting", 1, 7, "objective 8  25.0% moved"),
        ("of one's own", 1, 2, ""),
        ("of one's own", 1, 2, ""),
    ]
