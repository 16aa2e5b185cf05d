"""`kscn reproduce`: the table it prints, going on after a stop, and what it refuses."""

import json

import pytest

from kscn.cli.reproduce import table_lines
from kscn.cli.terminal import Terminal
from kscn.data import as_source
from kscn.data.dataset import make_dataset
from kscn.experiments import runner, tables

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
def preset(tmp_path):
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
    assert rows["method"][1:] == ["ACC", "NMI", "ARI", "minutes", "paper", "ACC", "NMI"]
    assert rows["dream-net"][1:] == ["-"] * 4 + ["99.50", "98.00"]
    acc = rows["k-subspaces"][1:4]
    assert (acc[1], rows["k-subspaces"][-2:]) == ("±", ["~12", "~2"])
    assert "Three planes: planes, per cent, 2 seeds" in result.output
    figures = json.loads((tmp_path / "small_k-subspaces.json").read_text())["datasets"]["planes"]
    assert float(acc[0]) == pytest.approx(100 * figures["acc"]["mean"], abs=0.005)
    assert f"wrote {tmp_path / 'small_k-subspaces.json'}" in result.output


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
    lines = [line for line in second.output.splitlines() if line.startswith("planes_")]
    assert [line.endswith("already there") for line in lines] == [True, False]


def test_deep_methods_take_a_preset_of_ones_own(small, kscn, tmp_path, preset):
    options = ("--method", "kscn-s", "--method", "kscn-g", "--seeds", 1, "--preset", preset)
    result = kscn("reproduce", "small", *options, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in (tmp_path / "out").glob("*.json"))
    assert names == ["small_kscn-g_tiny.json", "small_kscn-s_tiny.json"]
    assert "±" not in result.output  # one seed has no deviation
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
    figures = {"mean": 0.5, "std": 0.01, "per_seed": [0.49, 0.51]}
    ours = {
        "acc": figures,
        "nmi": figures,
        "ari": figures,
        "seconds": {"mean": 90},
        "seeds": [0, 1],
    }
    table = tables.Table("small", "Three planes", 3, PAPER)
    lines = table_lines(
        Terminal(False, False, 80), table, {"k-subspaces": {"datasets": {"planes": ours}}}
    )
    assert "50.00 +- 1.00" in lines[3]
    assert " 1.5 " in lines[3]
