"""The runner: what it measures, what it does not do twice, and what survives a kill."""

import json
import os
import statistics
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kscn import KSubspaces
from kscn.data.dataset import make_dataset
from kscn.errors import DataError, InputError
from kscn_paper import environment, methods, runner
from kscn_paper.runner import Cell, Reproduction
from kscn_paper.tables import Table


@pytest.fixture
def reproduce(table, preset, load, tmp_path):
    """A reproduction of the small table into tmp_path / "out"."""

    def make(chosen=(), seeds=2, tables=None, out=tmp_path / "out"):
        return Reproduction(tables or [table], chosen, str(preset), range(seeds), out, load)

    return make


def run_all(work):
    return [work.run(cell) for cell in work.cells()]


def test_the_grid_is_every_available_method_on_its_data_sets_with_all_seeds(reproduce, table):
    work = reproduce()
    assert work.methods(table) == ["k-subspaces", "kscn-s"]
    assert work.missing(table) == ["nobody-has-it"]
    assert [cell.name for cell in work.cells()] == [
        "first_k-subspaces_seed0",
        "first_k-subspaces_seed1",
        "first_kscn-s_tiny_seed0",
        "first_kscn-s_tiny_seed1",
        "second_kscn-s_tiny_seed0",
        "second_kscn-s_tiny_seed1",
    ]


def test_a_chosen_method_need_not_be_in_the_table(reproduce, table):
    work = reproduce(["kscn-g"], seeds=1)
    assert [cell.dataset for cell in work.cells()] == ["first", "second"]
    assert work.missing(table) == []


def test_tables_share_their_runs(reproduce, table):
    assert reproduce(tables=[table, table]).cells() == reproduce().cells()


def test_a_method_that_is_not_available_is_refused(reproduce):
    with pytest.raises(InputError, match="'nobody-has-it' is not available; give one of kscn-s"):
        reproduce(["nobody-has-it"])


def test_a_run_records_what_it_was_and_what_it_found(reproduce, load):
    work = reproduce(["kscn-s"], seeds=1)
    cell = work.cells()[0]
    outcome = work.run(cell)
    assert outcome.fresh
    record = json.loads(work.path(cell).read_text())
    assert record == outcome.record
    assert set(record["scores"]) == {"acc", "nmi", "ari"}
    assert sum(record["sizes"]) == 90
    assert record["seconds"] > 0
    assert record["peak_memory_mb"] > 10
    assert record["versions"]["torch"]
    config = record["config"]
    assert (config["dataset"], config["samples"], config["preset"]) == ("first", 90, "tiny")
    assert config["parameters"]["autoencoder_params"] == {
        "channels": [4, 3],
        "kernels": [3, 3],
        "batch_norm": True,
    }
    assert config["parameters"]["update"] == "svd"
    assert config["parameters"]["random_state"] == record["seed"] == 0
    # The same by hand.
    dataset = load("first")
    model = methods.make("kscn-s", **config["parameters"]).fit(dataset.samples)
    assert record["objective"] == model.inertia_
    assert record["sizes"] == np.bincount(model.labels_, minlength=3).tolist()


def test_labels_reach_only_the_scores(table, preset, load, tmp_path):
    def with_false_labels(name):
        dataset = load(name)
        return make_dataset(dataset.samples, np.arange(90) % 3, name)

    records = []
    for number, loader in enumerate((load, with_false_labels)):
        out = tmp_path / str(number)
        work = Reproduction([table], ["kscn-s"], str(preset), [0], out, loader)
        records.append(work.run(work.cells()[0]).record)
    for name in ("config", "sizes", "objective", "iterations"):
        assert records[0][name] == records[1][name]
    assert records[0]["scores"] != records[1]["scores"]


def test_what_is_finished_is_not_repeated(reproduce, monkeypatch):
    before = [outcome.record for outcome in run_all(reproduce())]
    monkeypatch.setattr(runner, "measure", lambda *_: pytest.fail("measured again"))
    outcomes = run_all(reproduce())
    assert not any(outcome.fresh for outcome in outcomes)
    assert [outcome.record for outcome in outcomes] == before


def test_a_stop_between_runs_costs_none_of_them(reproduce, monkeypatch, tmp_path):
    measure, count = runner.measure, iter(range(9))

    def stop_at_the_third(*args):
        if next(count) == 2:
            raise KeyboardInterrupt
        return measure(*args)

    monkeypatch.setattr(runner, "measure", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run_all(reproduce(["k-subspaces"], seeds=4))
    assert sorted(os.listdir(tmp_path / "out" / "reproduce")) == [
        "first_k-subspaces_seed0.json",
        "first_k-subspaces_seed1.json",
    ]
    outcomes = run_all(reproduce(["k-subspaces"], seeds=4))
    assert [outcome.fresh for outcome in outcomes] == [False, False, True, True]


def test_any_seeds_can_be_chosen(reproduce, table, preset, load, tmp_path):
    run_all(reproduce(["k-subspaces"], seeds=2))
    work = Reproduction([table], ["k-subspaces"], str(preset), [1, 7, 7], tmp_path / "out", load)
    assert [outcome.fresh for outcome in run_all(work)] == [False, True]
    summary = work.summarise(table)["k-subspaces"]
    assert summary["datasets"]["first"]["seeds"] == [1, 7]
    assert summary["command"] == "kscn reproduce small --method k-subspaces --seed 1 --seed 7"


def test_more_seeds_keep_the_first_ones(reproduce):
    run_all(reproduce(["k-subspaces"], seeds=1))
    outcomes = run_all(reproduce(["k-subspaces"], seeds=2))
    assert [outcome.fresh for outcome in outcomes] == [False, True]


def test_other_settings_run_again_and_say_which(reproduce, preset):
    cells = reproduce(["kscn-s"], seeds=1).cells()[:1]
    reproduce(["kscn-s"], seeds=1).run(cells[0])
    preset.write_text(preset.read_text().replace("epochs = 1", "epochs = 2") + "batch_size = 50\n")
    outcome = reproduce(["kscn-s"], seeds=1).run(cells[0])
    assert outcome.fresh
    assert outcome.changed == ("batch_size", "epochs", "pretrain_epochs")
    assert outcome.record["iterations"] <= 2
    assert not reproduce(["kscn-s"], seeds=1).run(cells[0]).fresh


def rewrite(path, change):
    """Change the parameters that a run's file has recorded."""
    record = json.loads(path.read_text())
    change(record["config"]["parameters"])
    path.write_text(json.dumps(record))


def test_a_parameter_that_is_newer_than_a_run_counts_as_its_default(reproduce):
    work = reproduce(["kscn-s"], seeds=1)
    cell = work.cells()[0]
    before = work.run(cell).record
    # As written by a version that had no balance, which has its default in the preset.
    rewrite(work.path(cell), lambda found: found.pop("balance"))
    outcome = reproduce(["kscn-s"], seeds=1).run(cell)
    assert not outcome.fresh
    assert outcome.record["scores"] == before["scores"]


def test_a_parameter_that_there_is_no_more_counts_if_it_was_set(reproduce):
    work = reproduce(["kscn-s"], seeds=1)
    cell = work.cells()[0]
    work.run(cell)
    rewrite(work.path(cell), lambda found: found.update(restarts=1, pretrained=None))
    assert not reproduce(["kscn-s"], seeds=1).run(cell).fresh
    rewrite(work.path(cell), lambda found: found.update(restarts=4))
    assert reproduce(["kscn-s"], seeds=1).run(cell).changed == ("restarts",)


def test_a_parameter_that_is_newer_than_a_run_and_set_otherwise_runs_again(reproduce):
    work = reproduce(["kscn-s"], seeds=1)
    cell = work.cells()[0]
    work.run(cell)
    # The preset sets latent_dim = 6 and the class has 30: the old run was made with 30.
    rewrite(work.path(cell), lambda found: found.pop("latent_dim"))
    outcome = reproduce(["kscn-s"], seeds=1).run(cell)
    assert (outcome.fresh, outcome.changed) == (True, ("latent_dim",))


def test_a_recorded_value_that_is_not_the_default_of_today_runs_again(reproduce):
    work = reproduce(["k-subspaces"], seeds=1)
    (cell,) = work.cells()
    work.run(cell)
    rewrite(work.path(cell), lambda found: found.update(trim=0.5, forgotten=1))
    assert reproduce(["k-subspaces"], seeds=1).run(cell).changed == ("forgotten", "trim")


def test_the_time_left_is_known_from_runs_of_the_same_kind(reproduce, monkeypatch):
    work = reproduce(seeds=3)  # 3 of k-subspaces on first, 3 of kscn-s on first and on second
    cells = work.cells()
    assert work.seconds_left(cells) == (0, 9)
    seconds = iter([2.0, 4.0])
    measure = runner.measure
    monkeypatch.setattr(runner, "measure", lambda *a: {**measure(*a), "seconds": next(seconds)})
    for cell in cells[:2]:
        work.run(cell)
    assert work.seconds_left(cells[2:]) == (3.0, 6)
    assert work.seconds_left(cells[2:3]) == (3.0, 0)
    assert work.seconds_left(cells[:2]) == (0, 0)  # what is there takes no time


def test_data_of_ones_own_is_opened_by_its_path_and_has_no_section_in_a_preset(
    preset, tmp_path, load
):
    preset.write_text(preset.read_text() + "[mnist]\nsubspace_dim = 1\n")
    table = Table("mine", "Mine", 3, {"mnist": {"kscn-s": {}}}, {"mnist": "first"})
    work = Reproduction([table], [], str(preset), [0], tmp_path, load)
    (outcome,) = run_all(work)
    assert load.names == ["first"]
    assert outcome.record["config"]["source"] == "first"
    assert outcome.record["config"]["parameters"]["subspace_dim"] == 2
    other = Table("mine", "Mine", 3, {"mnist": {"kscn-s": {}}}, {"mnist": "second"})
    (again,) = run_all(Reproduction([other], [], str(preset), [0], tmp_path, load))
    assert again.changed == ("source",)


def test_data_without_labels_cannot_be_scored(table, tmp_path, load):
    def bare(name):
        return make_dataset(load(name).samples, None, name)

    work = Reproduction([table], ["k-subspaces"], "tuned", [0], tmp_path, bare)
    with pytest.raises(InputError, match="first has no labels to score by"):
        run_all(work)
    assert not list(tmp_path.rglob("*.json"))


RECORD = {
    "config": {"dataset": "first", "method": "k-subspaces", "preset": None, "parameters": {}},
    "seed": 0,
    "scores": {"acc": 0.5, "nmi": 0.5, "ari": 0.5},
    "seconds": 1.0,
}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"config": {',
        b"[]",
        b"\xff\xfe",
        b"{}",
        b'{"config": {}, "seed": 0}',
        b"[" * 100_000,
        json.dumps(RECORD).replace('"seed": 0', '"seed": ' + "9" * 5000).encode(),
        *(
            json.dumps(RECORD | change).encode()
            for change in (
                {"config": []},
                {"config": RECORD["config"] | {"method": 3}},
                {"config": RECORD["config"] | {"preset": []}},
                {"config": RECORD["config"] | {"parameters": []}},
                {"seed": "<script>"},
                {"seed": [0]},
                {"scores": []},
                {"scores": RECORD["scores"] | {"acc": "0.5"}},
                {"scores": RECORD["scores"] | {"ari": float("nan")}},
                {"seconds": float("inf")},
                {"seconds": -1},
                {"seconds": None},
                {"time": 3},
                {"peak_memory_mb": "much"},
            )
        ),
    ],
)
def test_a_damaged_run_is_named_and_kept(reproduce, content):
    work = reproduce(["k-subspaces"], seeds=1)
    (cell,) = work.cells()
    path = work.path(cell)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"first_k-subspaces_seed0\.json is damaged .* delete it"):
        work.run(cell)
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_written_is_found_before_the_work(reproduce, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(runner, "measure", lambda *_: pytest.fail("the work began"))
    with pytest.raises(InputError, match="cannot write to"):
        run_all(reproduce(out=tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_leaves_no_half_file(reproduce, monkeypatch, tmp_path):
    work = reproduce(["k-subspaces"], seeds=1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*_seed0\.json: No space left"):
        run_all(work)
    assert os.listdir(tmp_path / "out" / "reproduce") == []


def test_a_summary_has_mean_deviation_and_every_seed(reproduce, table, tmp_path):
    work = reproduce(["kscn-s"], seeds=3)
    outcomes = run_all(work)
    found = work.summarise(table)["kscn-s"]
    assert found == json.loads((tmp_path / "out" / "small_kscn-s_tiny.json").read_text())
    accuracies = [o.record["scores"]["acc"] for o in outcomes[:3]]
    figures = found["datasets"]["first"]
    assert figures["seeds"] == [0, 1, 2]
    assert figures["acc"]["per_seed"] == accuracies
    assert figures["acc"]["mean"] == pytest.approx(sum(accuracies) / 3)
    assert figures["acc"]["std"] == pytest.approx(statistics.pstdev(accuracies))
    assert figures["paper"] == {"acc": 99.0, "nmi": 98.0}
    assert found["datasets"]["second"]["paper"]["acc"] == 97.0
    assert found["command"].startswith("kscn reproduce small --method kscn-s --seeds 3 --preset ")


def test_a_method_whose_runs_are_not_all_there_has_no_summary(reproduce, table, tmp_path):
    work = reproduce()
    for cell in work.cells()[:3]:  # both of k-subspaces, one of kscn-s
        work.run(cell)
    assert list(work.summarise(table)) == ["k-subspaces"]
    assert [p.name for p in (tmp_path / "out").glob("*.json")] == ["small_k-subspaces.json"]


def test_a_data_set_is_opened_once_for_the_runs_that_follow_each_other(reproduce, load):
    run_all(reproduce(["kscn-s"], seeds=2))
    assert load.names == ["first", "second"]


# --- methods ------------------------------------------------------------------------------------


def test_settings_are_plain_values_that_do_not_change_between_processes():
    model = KSubspaces(3, subspace_dim=np.array([1, 2, 3]), callbacks=[print])
    found = methods.settings(model)
    assert found["subspace_dim"] == [1, 2, 3]
    assert "callbacks" not in found
    assert json.loads(json.dumps(found)) == found
    model.init = object()
    assert methods.settings(model)["init"] == "object"


def test_defaults_are_those_of_the_class_not_of_the_method():
    assert methods.defaults(methods.make("kscn-g", 3))["update"] == "svd"
    assert methods.defaults(KSubspaces(4))["n_clusters"] == 8
    assert methods.defaults(KSubspaces(4))["callbacks"] == []


def test_defaults_reach_into_estimators_inside_of_others():
    from sklearn.ensemble import BaggingClassifier
    from sklearn.tree import DecisionTreeClassifier

    found = methods.defaults(BaggingClassifier(DecisionTreeClassifier(max_depth=3)))
    assert found["n_estimators"] == 10
    assert found["estimator"] is found["estimator__max_depth"] is None
    assert found["estimator__criterion"] == "gini"


@pytest.mark.parametrize("name", methods.names())
def test_every_method_can_be_made_compared_and_written_down(name):
    model = methods.make(name, 3)
    found = methods.settings(model)
    assert found["n_clusters"] == 3
    assert json.loads(json.dumps(found)) == found
    former: set[str] = {"restarts"}
    assert set(methods.defaults(model)) - former <= methods.accepted(name)


class Baseline:
    """A baseline without seed and callbacks."""

    def __init__(self, n_clusters):
        self.n_clusters = n_clusters

    def get_params(self, deep=True):
        return {"n_clusters": self.n_clusters}

    def fit(self, samples):
        self.labels_ = np.arange(len(samples)) % self.n_clusters
        return self


def test_a_baseline_is_a_method(monkeypatch, table, load, tmp_path):
    from kscn_paper import rivals as baselines

    monkeypatch.setattr(baselines, "NAMES", ("nobody-has-it",), raising=False)
    monkeypatch.setattr(baselines, "make", lambda name, k, **p: Baseline(k, **p), raising=False)
    work = Reproduction([table], ["nobody-has-it"], "tuned", [0], tmp_path, load)
    (outcome,) = run_all(work)
    assert outcome.record["sizes"] == [30, 30, 30]
    assert outcome.record["objective"] is None
    assert outcome.record["config"]["preset"] is None


def test_a_network_from_the_cache_is_told_because_its_time_is_missing(load):
    model = Baseline(3)
    model.history_ = [{"stage": "pretrained", "network": "sae-0123"}, {"stage": "fit"}]
    assert runner.measure(model, load("first"))["pretrained_in_cache"]
    assert not runner.measure(Baseline(3), load("first"))["pretrained_in_cache"]


# --- environment --------------------------------------------------------------------------------


def test_the_peak_of_a_run_is_its_own():
    block = np.ones(20_000_000)  # 160 MB
    high = environment.peak_memory_mb()
    del block
    environment.reset_peak_memory()
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak cannot be reset here")
    assert environment.peak_memory_mb() < high - 100


def test_outside_of_a_checkout_there_is_no_commit(monkeypatch, tmp_path):
    (tmp_path / "__init__.py").write_text("")
    monkeypatch.setattr("kscn.__file__", str(tmp_path / "__init__.py"))
    assert environment.commit() is None


def test_names_of_runs_are_distinct():
    cells = [
        Cell(dataset, method, preset, seed, 10)
        for dataset in ("mnist", "mnist-test")
        for method in ("kscn-s", "k-means")
        for preset in ("tuned", None)
        for seed in (0, 1)
    ]
    assert len({cell.name for cell in cells}) == len(cells)


def test_affinity_methods_can_have_a_network_that_knows_more_data(table, load, tmp_path):
    other = replace(table, pretraining={"first": "second"})
    work = Reproduction([other], ["lrr-sae", "k-means"], "tuned", [0], tmp_path, load)
    by_method = {c.method: c for c in work.cells() if c.dataset == "first"}
    assert by_method["lrr-sae"].pretrain_on == "second"
    assert by_method["k-means"].pretrain_on is None
    model = work._model(by_method["lrr-sae"], load("first"), ())
    np.testing.assert_array_equal(np.asarray(model.pretrain_on), np.asarray(load("second").samples))
    config = work._config(by_method["lrr-sae"], load("first"), model)
    assert config["parameters"]["pretrain_on"] == "second"


def test_a_table_can_ask_for_other_parameters_than_the_defaults(table, load, tmp_path):
    other = replace(table, settings={"first": {"k-means": {"n_init": 2}}})
    work = Reproduction([other], ["k-means"], "tuned", [0], tmp_path, load)
    by_set = {cell.dataset: cell for cell in work.cells()}
    record = work.run(by_set["first"]).record
    assert record["config"]["parameters"]["n_init"] == 2
    assert work._model(by_set["second"], load("second"), ()).n_init == 20
    assert not work.run(by_set["first"]).fresh
    plain = Reproduction([table], ["k-means"], "tuned", [0], tmp_path, load)
    assert plain.run(plain.cells()[0]).changed == ("n_init",)


def test_other_work_on_the_machine_is_told():
    elsewhere = environment.Elsewhere()
    busy = elsewhere.busy()
    assert busy is None or busy >= 0
    elsewhere.before = None  # a system that does not tell
    assert elsewhere.busy() is None


def test_a_commit_is_dirty_by_its_code_and_not_by_results(monkeypatch, tmp_path):
    package = tmp_path / "src" / "kscn"
    package.mkdir(parents=True)
    code, result = package / "__init__.py", tmp_path / "results.json"
    code.write_text("x = 1\n")
    result.write_text("{}")
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(environment.kscn, "__file__", str(code))
    clean = environment.commit()
    assert clean and "dirty" not in clean
    result.write_text("{1}")
    assert environment.commit() == clean
    code.write_text("x = 2\n")
    assert environment.commit() == f"{clean}-dirty"
