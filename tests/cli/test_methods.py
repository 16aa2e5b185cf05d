"""`kscn fit` with every kind of method: deep and linear; options, presets, progress."""

import json
import os
import tomllib

import numpy as np
import pytest
import tomli_w
from sklearn.datasets import load_iris

import kscn as package
from kscn.cli.fit import _taken, choose, command
from kscn.cli.progress import FitProgress
from kscn.data import load
from kscn.estimators import defaults
from kscn.runs.directory import plain, read_run

TINY = """
[common]
n_init = 1
pretrain_epochs = 2
epochs = 2
tol = 0.0
[images]
latent = "whitened"
latent_dim = 6
loss = "separation"
subspace_dim = 2
autoencoder_params = { channels = [4, 3], kernels = [3, 3], batch_norm = true }
augment = { kind = "affine", angle = 5.0, flip = false }
[images.kscn-g]
weight = 0.5
[vectors]
subspace_dim = 2
autoencoder_params = { hidden = [8], latent_dim = 5 }
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with ninety images of 8 x 8 on three planes, x.npy and xy.npz, and tiny.toml."""
    directory = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.standard_normal((3, 64, 2)))[0]
    labels = np.repeat([0, 1, 2], 30)
    images = np.einsum("nij,nj->ni", bases[labels], rng.standard_normal((90, 2)))
    images = images.reshape(90, 8, 8).astype(np.float32)
    np.save(directory / "x.npy", images)
    np.savez(directory / "xy.npz", x=images, y=labels)
    (directory / "tiny.toml").write_text(TINY)
    return directory


@pytest.fixture
def fit(kscn, made, tmp_path):
    """Fit the images with the tiny preset: fit("--seed", 1) -> (result, run directory)."""

    def call(*options, data="x.npy", run="run", preset=True):
        given = ("--method", "kscn-s", "--preset", made / "tiny.toml") if preset else ()
        result = kscn("fit", made / data, "-k", 3, "-o", tmp_path / run, *given, *options)
        return result, tmp_path / run

    return call


def config_of(run):
    return tomllib.loads((run / "config.toml").read_text())


# --- deep methods -------------------------------------------------------------------------------


def test_kscn_s_clusters_images(fit, made):
    result, run = fit("--seed", 1, data="xy.npz")
    assert result.exit_code == 0, result.output
    assert "90 samples of 8 x 8 in 3 subspaces of dimension 2" in result.output
    assert "after 1 epoch\n" in result.output  # the start is right, and no label changes
    assert "ACC 1.0000" in result.output
    assert set(os.listdir(run)) == {"config.toml", "history.jsonl", "labels.csv", "model"}
    config = config_of(run)
    assert config["run"]["method"] == "kscn-s"
    assert config["run"]["preset"] == str(made / "tiny.toml")
    opened = read_run(run)
    model = package.load_model(opened.model)
    assert isinstance(model, package.KSCN)
    assert model.predict(np.load(made / "x.npy")).tolist() == opened.labels().tolist()


def test_nested_settings_survive_in_the_config_and_repeat_the_run(fit, made):
    _, run = fit("--seed", 1)
    parameters = config_of(run)["parameters"]
    assert parameters["autoencoder_params"] == {
        "channels": [4, 3],
        "kernels": [3, 3],
        "batch_norm": True,
    }
    assert parameters["augment"] == {"kind": "affine", "angle": 5.0, "flip": False}
    model = package.KSCN.from_settings(**parameters).fit(np.load(made / "x.npy"))
    assert model.labels_.tolist() == read_run(run).labels().tolist()


def test_the_history_tells_every_stage(fit):
    _, run = fit()
    records = [json.loads(line) for line in (run / "history.jsonl").open()]
    stages = list(dict.fromkeys(record["stage"] for record in records))
    assert stages[0] == "pretrain"
    assert stages[-2:] == ["fit", "done"]
    assert [record["epoch"] for record in records if record["stage"] == "pretrain"] == [1, 2]
    assert sum(records[-2]["sizes"]) == 90


def test_options_count_more_than_the_preset(fit):
    options = "--epochs 1 --pretrain-epochs 0 --weight 0 --trim 0 --learning-rate 0.01"
    more = "--init k-means --subspace-dim 1 --batch-size 50 --n-init 2"
    result, run = fit(*options.split(), *more.split())
    assert result.exit_code == 0, result.output
    expected = {
        "epochs": 1, "pretrain_epochs": 0, "weight": 0.0, "trim": 0.0, "learning_rate": 0.01,
        "init": "k-means", "subspace_dim": 1, "batch_size": 50, "n_init": 2, "latent_dim": 6,
    }  # fmt: skip
    assert expected.items() <= config_of(run)["parameters"].items()


def test_kscn_g_has_its_own_settings(fit):
    result, run = fit("--method", "kscn-g")
    assert result.exit_code == 0, result.output
    parameters = config_of(run)["parameters"]
    assert (parameters["update"], parameters["weight"]) == ("grassmann", 0.5)


def test_the_tuned_preset_is_the_default(made):
    path = str(made / "x.npy")
    images = load(path)
    choice = choose(images, path, 3, "kscn-s", None, 0, {})
    assert (choice.method, choice.preset) == ("kscn-s", "tuned")
    given = defaults.settings({"n_clusters": 3}, (8, 8), len(images.samples))
    assert given.items() <= choice.model._flat_params().items()


def test_a_dense_network_takes_the_settings_for_vectors(fit):
    result, run = fit("--autoencoder", "sae")
    assert result.exit_code == 0, result.output
    parameters = config_of(run)["parameters"]
    assert parameters["autoencoder"] == "sae"
    assert parameters["autoencoder_params"] == {"hidden": [8], "latent_dim": 5}


@pytest.fixture(scope="module")
def iris(kscn, tmp_path_factory):
    """What `kscn fit` says of flowers, and the run."""
    place = tmp_path_factory.mktemp("iris")
    np.savetxt(place / "iris.csv", load_iris().data, delimiter=",")
    result = kscn("fit", place / "iris.csv", "-k", 3, "-o", place / "run", "--seed", 0)
    assert result.exit_code == 0, result.output
    return result.output, place / "run"


def test_without_a_method_the_best_one_fits_images_and_vectors(iris, made):
    path = str(made / "x.npy")
    choice = choose(load(path), path, 3, None, None, 0, {"epochs": 2, "starts": 3})
    assert (choice.method, choice.preset) == ("best", None)
    assert isinstance(choice.model, package.KSCNPlus)
    assert config_of(iris[1])["run"]["method"] == "best"


def test_fit_info_and_report_tell_what_was_tried_and_chosen(iris, kscn):
    told, run = iris
    choice = read_run(run).result["chosen"]
    assert len(choice["tried"]) == 10 < choice["candidates"]
    for output in (told, kscn("info", run).output):
        words = " ".join(output.split())
        assert "150 samples of 4 features in 3 clusters" in words
        assert f"tried {choice['candidates']} clusterings in" in words
        assert f"because self-consistency {choice['consistency']:.3f}; best of another" in words
        assert f"find back to their cluster: {choice['consistency']:.2f}; the groups" in words
    assert kscn("report", run).exit_code == 0
    page = (run / "report.html").read_text()
    assert f"find back to their cluster: {choice['consistency']:.2f}; the groups" in page
    assert page.count('<td class="num">0.') >= 10


def test_vectors_can_be_clustered_by_kscn(kscn, files, made, tmp_path):
    result = kscn("fit", files / "x.npy", "-k", 3, "-o", tmp_path / "run", "--method", "kscn-s",
                  "--preset", made / "tiny.toml")  # fmt: skip
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("part", ["", "model"])
def test_an_autoencoder_can_be_taken_from_a_run_or_a_model(fit, part):
    _, first = fit("--seed", 1)
    result, run = fit("--seed", 2, "--pretrained", first / part, run="second")
    assert result.exit_code == 0, result.output
    parameters = config_of(run)["parameters"]
    assert parameters["pretrained"] == str(first / "model")
    assert parameters["pretrain_epochs"] == 0
    records = [json.loads(line) for line in (run / "history.jsonl").open()]
    assert "pretrain" not in {record["stage"] for record in records}


def test_runs_of_kscn_can_be_used(fit, kscn, made, tmp_path):
    _, run = fit("--seed", 1, data="xy.npz")
    info = kscn("info", run).output
    assert "KSCN" in info
    assert "{'channels': [4, 3], 'kernels': [3, 3], 'batch_norm': True}" in info
    result = kscn("predict", run, made / "x.npy", "-o", tmp_path / "labels.csv")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "labels.csv").read_bytes() == (run / "labels.csv").read_bytes()
    assert "ACC" in kscn("evaluate", run).output


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-iter", 3), "--max-iter cannot be used with the method kscn-s; it takes --sub"),
        (("--affine",), "--affine cannot be used with the method kscn-s"),
        (("--method", "k-subspaces"), "--preset cannot be used with the method k-subspaces"),
        (("--method", "best"), "--preset cannot be used with the method best; it takes --starts"),
        (("--method", "magic"), "the method 'magic' is not available; give one of kscn-s"),
        (("--preset", "papr"), "'papr' is no known preset; known ones are paper, tuned"),
        (("--pretrained", "nothing"), "nothing does not exist"),
        (("--weight", -1), "weight"),
        (("--init", "magic"), "init='magic'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_in_words(one_sentence, fit, options, words):
    result, run = fit(*options)
    assert words in one_sentence(result)
    assert not run.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--subspace-dim", 2), "add --method k-subspaces or --method kscn-s, or leave"),
        (("--affine", "--trim", 0.1), "add --method k-subspaces, or leave"),
        (("--preset", "paper"), "add --method kscn-s, or leave"),
        (("--weight", 2, "--epochs", 3), "add --method kscn-s, or leave"),
        (("--weight", 2, "--affine"), "name the method that is meant by --method"),
        (("--weight", 2, "--starts", 3), "name the method that is meant by --method"),
    ],
)
def test_options_of_other_methods_need_the_method_to_be_named(one_sentence, fit, options, words):
    result, run = fit(*options, preset=False)
    told = one_sentence(result)
    assert f"{options[0]} cannot" in told or f"{options[0]}, " in told
    assert "cannot be used with the default method, best; " in told and words in told
    assert not run.exists()


def test_options_of_the_network_are_no_options_of_the_linear_method(one_sentence, fit):
    result, _ = fit("--method", "k-subspaces", "--epochs", 3, "--weight", 0, preset=False)
    assert "--epochs, --weight cannot be used with the method k-subspaces" in one_sentence(result)


def test_an_autoencoder_from_a_run_without_one_is_refused(one_sentence, fit, finished):
    result, _ = fit("--pretrained", finished)
    assert "no autoencoder" in one_sentence(result)


def test_every_option_of_the_command_belongs_to_some_method():
    taken = _taken("kscn-s") | _taken("k-subspaces") | _taken("best")
    of_the_run = {"data", "clusters", "output", "resume", "overwrite", "size", "skip_broken"}
    assert {option.name for option in command.params} - of_the_run <= taken | {"method", "seed"}


# --- config and progress ------------------------------------------------------------------------


def test_any_plain_value_survives_toml():
    values = {
        "table": {"channels": [1, 2], "deeper": {"a-b": 0.5, "two words": "x\"y\n"}, "none": None},
        "empty": {}, "lists": [[1, 2], []], "text": "ü \\ '", "small": 1e-05, "yes": True,
        "nothing": None, "dotted.key": 1,
    }  # fmt: skip
    read = tomllib.loads(tomli_w.dumps(plain(values)))
    del values["nothing"], values["table"]["none"]
    assert read == values


def test_progress_shows_every_stage_with_its_own_total():
    seen = []
    with FitProgress(("this run", 1, 6, ", 5 s left")) as progress:
        for record in (
            {"stage": "pretrain", "epoch": 3, "epochs": 20, "reconstruction": 1.25},
            {"stage": "search", "round": 2, "rounds": 5, "starts": 8, "objective": 10.0},
            {"stage": "start", "iteration": 4, "max_iter": 100, "objective": 9.0, "changed": 0.5},
            {"stage": "fit", "epoch": 1, "epochs": 7, "objective": 8.0, "changed": 0.25},
            {"stage": "of a baseline", "epoch": 1, "epochs": 2},
            {"stage": "nothing to count"},
        ):
            progress(None, record)
            all_runs, task = progress.tasks
            seen.append((task.description, task.completed, task.total, task.fields["note"]))
    assert (all_runs.description, all_runs.completed, all_runs.total) == ("this run", 1, 6)
    assert all_runs.fields["note"] == "2 of 6, 5 s left"
    assert seen == [
        ("pretraining", 3, 20, "error 1.25"),
        ("trying starts", 2, 5, "objective 10"),
        ("starting", 4, 100, "objective 9  50.0% moved"),
        ("fitting", 1, 7, "objective 8  25.0% moved"),
        ("of a baseline", 1, 2, ""),
        ("of a baseline", 1, 2, ""),
    ]
