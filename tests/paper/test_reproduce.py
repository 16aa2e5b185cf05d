"""`kscn reproduce`: the table it prints, going on after a stop, and what it refuses."""

import json

import pytest

from kscn.cli.terminal import Terminal
from kscn.data import as_source
from kscn.data.dataset import make_dataset
from kscn_paper import runner, tables
from kscn_paper.comparison import Comparison, Row
from kscn_paper.reproduce import table_lines

PAPER = {
    "planes": {
        "dream-net": {"acc": 99.5, "nmi": 98.0},
        "k-subspaces": {"acc": 12.0, "nmi": 2.0, "approximate": True},
    }
}


@pytest.fixture
def small(monkeypatch, planes):
    """A table `small` of the three planes, and a loader of the data it names."""
    table = tables.Table("small", "Three planes", 3, PAPER)
    monkeypatch.setattr(tables, "_tables", lambda: {"small": table})

    def load(name):
        return make_dataset(as_source(planes[0]), planes[1], name)

    monkeypatch.setattr("kscn.cli.progress.load_data", load)


@pytest.fixture
def preset(tmp_path, monkeypatch):
    monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))  # of pretrained networks
    path = tmp_path / "tiny.toml"
    path.write_text(
        "[vectors]\nautoencoder_params = { hidden = [8], latent_dim = 4 }\nsubspace_dim = 2\n"
        "n_init = 1\npretrain_epochs = 1\nepochs = 1\n"
    )
    return path


def test_ours_is_printed_beside_the_papers(small, kscn, tmp_path):
    result = kscn("reproduce", "small", "--seeds", 2, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "small: not available yet, skipped: dream-net" in result.output
    rows = {line.split()[0]: line.split() for line in result.output.splitlines() if line.strip()}
    assert rows["method"][1:] == [
        "seeds",
        "ACC",
        "NMI",
        "ARI",
        "minutes",
        "paper",
        "ACC",
        "NMI",
        "gap",
    ]
    assert rows["dream-net"][1:] == ["-"] * 5 + ["99.50", "98.00", "-"]
    ours = rows["k-subspaces"]
    assert (ours[1], ours[3], ours[-3:-1]) == ("2", "±", ["~12", "~2"])
    figures = json.loads((tmp_path / "small_k-subspaces.json").read_text())["datasets"]["planes"]
    mean = 100 * figures["acc"]["mean"]
    assert float(ours[2]) == pytest.approx(mean, abs=0.05)
    assert float(ours[-1]) == pytest.approx(mean - 12.0, abs=0.05)
    assert f"wrote {tmp_path / 'small_k-subspaces.json'}" in result.output


def test_tables_are_written_of_all_runs_that_are_there(small, kscn, tmp_path, preset):
    assert kscn("reproduce", "small", "--seed", 0, "--out", tmp_path).exit_code == 0
    deep = ("--method", "kscn-s", "--preset", preset, "--seed", 3)
    result = kscn("reproduce", "small", *deep, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for kind in ("md", "html"):
        path = tmp_path / "tables" / f"small.{kind}"
        assert f"wrote {path}" in result.output
        text = path.read_text()
        assert "k-subspaces" in text
        assert "tiny" in text
        assert "kscn reproduce small" in text
    assert "kscn-s (tiny)" in result.output


def test_tables_can_be_written_without_a_run(small, kscn, tmp_path, monkeypatch):
    first = kscn("reproduce", "small", "--seed", 0, "--out", tmp_path)
    before = (tmp_path / "tables" / "small.md").read_text()
    (tmp_path / "tables" / "small.md").unlink()
    monkeypatch.setattr(runner, "measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr("kscn.cli.progress.load_data", lambda *_: pytest.fail("opened data"))
    result = kscn("reproduce", "small", "--no-run", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "tables" / "small.md").read_text() == before
    shown = first.output[first.output.index("Three planes") :]
    assert result.output.strip() == shown.strip()


def test_a_damaged_run_is_also_told_when_nothing_is_measured(small, kscn, tmp_path, one_sentence):
    (tmp_path / "reproduce").mkdir()
    (tmp_path / "reproduce" / "planes_k-subspaces_seed0.json").write_text("{")
    result = kscn("reproduce", "small", "--no-run", "--out", tmp_path)
    assert "planes_k-subspaces_seed0.json is damaged" in one_sentence(result)
    assert (tmp_path / "tables" / "small.html").exists()


def test_progress_counts_the_grid_and_tells_the_time_left(small, kscn, tmp_path, monkeypatch):
    measure = runner.measure
    monkeypatch.setattr(runner, "measure", lambda *a: {**measure(*a), "seconds": 100.0})
    result = kscn("reproduce", "small", "--seeds", 3, "--out", tmp_path)
    lines = [line for line in result.output.splitlines() if line.startswith("[")]
    assert [line.split()[0] for line in lines] == ["[1/3]", "[2/3]", "[3/3]"]
    assert lines[0].endswith("1 min 40 s, about 3 min 20 s left")
    assert lines[1].endswith("1 min 40 s, about 1 min 40 s left")
    assert lines[2].endswith("1 min 40 s")


def test_the_time_left_is_a_lower_bound_where_a_method_is_new(
    small, kscn, tmp_path, monkeypatch, preset
):
    measure = runner.measure
    monkeypatch.setattr(runner, "measure", lambda *a: {**measure(*a), "seconds": 50.0})
    options = ("--method", "k-subspaces", "--method", "kscn-s", "--preset", preset, "--seeds", 2)
    result = kscn("reproduce", "small", *options, "--out", tmp_path)
    lines = [line for line in result.output.splitlines() if line.startswith("[")]
    assert lines[0].endswith(", more than 50.0 s left")
    assert lines[1].endswith("   50.0 s")  # nothing is known of kscn-s yet
    assert lines[2].endswith(", about 50.0 s left")


def test_a_table_of_ones_own(files, kscn, tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(
        f"[one]\nclusters = 3\n[one.planes]\nsource = '{files / 'xy.npz'}'\n"
        "k-subspaces = { acc = 90.0 }\n[two]\nclusters = 3\n"
        f"[two.planes]\nsource = '{files / 'xy.npz'}'\nk-subspaces = {{}}\n"
    )
    result = kscn("reproduce", mine, "--seeds", 1, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.count("planes_k-subspaces_seed0   ACC") == 1  # both tables share the run
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert names == {f"{stem}.{kind}" for stem in ("one", "two", "mine") for kind in ("md", "html")}
    assert f"kscn reproduce {mine}" in (tmp_path / "tables" / "one.md").read_text()


def test_the_same_command_goes_on_where_it_was(small, kscn, tmp_path, monkeypatch):
    call = ("reproduce", "small", "--seeds", 2, "--out", tmp_path)
    measure, count = runner.measure, iter(range(9))

    def stopped(*args):
        if next(count) == 1:
            raise KeyboardInterrupt
        return measure(*args)

    monkeypatch.setattr(runner, "measure", stopped)
    first = kscn(*call)
    assert first.exit_code == 130
    assert first.stderr.strip() == "kscn: interrupted; nothing already on disk was lost"
    second = kscn(*call)
    assert second.exit_code == 0, second.output
    lines = [line for line in second.output.splitlines() if line.startswith("[")]
    assert ["already there" in line for line in lines] == [True, False]


def test_deep_methods_take_a_preset_of_ones_own(small, kscn, tmp_path, preset):
    options = ("--method", "kscn-s", "--method", "kscn-g", "--seeds", 1, "--preset", preset)
    result = kscn("reproduce", "small", *options, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in (tmp_path / "out").glob("*.json"))
    assert names == ["small_kscn-g_tiny.json", "small_kscn-s_tiny.json"]
    assert "±" not in result.output  # one seed has no deviation
    assert (tmp_path / "out" / "tables" / "small.html").exists()
    preset.write_text(preset.read_text() + "weight = 0.5\n")
    again = kscn("reproduce", "small", *options, "--out", tmp_path / "out")
    assert again.output.count("again because of weight") == 2


def test_what_cannot_be_is_refused_in_one_sentence(small, one_sentence, kscn, tmp_path):
    call = ("reproduce", "small", "--out", tmp_path)
    assert "'cifar' is no table of the paper" in one_sentence(kscn("reproduce", "cifar"))
    refused = kscn(*call, "--method", "dream-net")
    assert "'dream-net' is not available; give one of kscn-s" in one_sentence(refused)
    refused = kscn(*call, "--method", "kscn-s", "--preset", "papr")
    assert "'papr' is no known preset" in one_sentence(refused)
    assert kscn(*call, "--seeds", 0).exit_code == 2


def test_a_damaged_run_is_named_and_the_others_are_measured(small, kscn, tmp_path):
    damaged = tmp_path / "reproduce" / "planes_k-subspaces_seed0.json"
    damaged.parent.mkdir()
    damaged.write_text('{"config"')
    result = kscn("reproduce", "small", "--seeds", 2, "--out", tmp_path)
    assert result.exit_code == 2
    assert f"{damaged} is damaged" in result.stderr
    assert "1 of 2 runs failed" in result.output
    assert (tmp_path / "reproduce" / "planes_k-subspaces_seed1.json").exists()
    assert not (tmp_path / "small_k-subspaces.json").exists()  # no mean of a part of the seeds


def test_a_fault_of_the_machine_stops_everything(small, kscn, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner, "write_json", full)
    result = kscn("reproduce", "small", "--seeds", 2, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.strip() == "kscn: No space left on device"


def test_a_plain_terminal_gets_plain_signs():
    runs = [
        {"seed": seed, "scores": dict.fromkeys(tables.SCORES, acc), "seconds": 90.0, "config": {}}
        for seed, acc in enumerate((0.49, 0.51))
    ]
    table = tables.Table("small", "Three planes", 3, PAPER)
    rows = [Row("k-subspaces", None, runs, PAPER["planes"]["k-subspaces"])]
    lines = table_lines(Terminal(False, False, 80), Comparison(table, "planes", rows))
    assert "50.0 +- 1.0" in lines[2]
    assert " 1.5 " in lines[2]
    assert lines[2].endswith("+38.0")
    coloured = table_lines(Terminal(True, True, 80), Comparison(table, "planes", rows))
    assert coloured[2].endswith("\x1b[32m+38.0\x1b[0m")
