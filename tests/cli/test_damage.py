"""Run directories that are damaged or come from a stranger: one sentence, exit code 2."""

import json
import shutil

import pytest

from kscn.runs import directory as rundir

HISTORY, CONFIG = "history.jsonl", "config.toml"


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a run that may be damaged."""
    return shutil.copytree(finished, tmp_path / "run")


ROW = {"space": "pixels", "method": "k-means", "consistency": 0.6}
CHOSEN = ROW | {"rival": None, "tried": [ROW], "candidates": 1, "spaces": 1, "refined": False}


def with_result(run, **changes):
    """The history with another last line."""
    *lines, last = (run / HISTORY).read_text().splitlines()
    return "\n".join([*lines, json.dumps(json.loads(last) | changes)])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (CONFIG, b"[run\n"),
        (CONFIG, b"\xff\xfe"),
        (CONFIG, b"[run]\n"),
        (CONFIG, b"a = " + b"[" * 100_000),
        (CONFIG, b"a = " + b"[" * 300 + b"]" * 300),
        (CONFIG, b"a" + b".a" * 500_000 + b" = 1"),
        (CONFIG, b"a = 1\n" * 300_000),
        (HISTORY, b""),
        (HISTORY, b'{"stage": "fi'),
        (HISTORY, b'{"stage": "done"}\n'),
        (HISTORY, b"[" * 100_000),
        (HISTORY, b"[[1]]\n3\n"),
        (HISTORY, b'"text"'),
    ],
)
def test_a_file_of_something_else_is_named(one_sentence, kscn, run, name, content):
    (run / name).write_bytes(content)
    told = one_sentence(kscn("info", run))
    assert f"{run / name} is damaged" in told and len(told) < 500


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('method = "k-subspaces"', "method = 3"),
        ('method = "k-subspaces"', ""),
        ('method = "k-subspaces"', 'method = "x"\npreset = []'),
        ("created = ", "created = 1979-05-27T07:32:00Z\nother = "),
        ("model = true", 'model = "yes"'),
        ("samples = 120", 'samples = "120"'),
        ("samples = 120", "samples = -1"),
        ("samples = 120", "samples = true"),
        ("shape = [\n    8,\n]", "shape = 8"),
        ("shape = [\n    8,\n]", "shape = []"),
        ("shape = [\n    8,\n]", "shape = [[8]]"),
        ("shape = [\n    8,\n]", "shape = [100000, 100000]"),
        ("name = ", "name = 1 #"),
        ("[parameters]", "parameters = 1\n[other]"),
    ],
)
def test_a_config_of_other_types_is_named(one_sentence, kscn, run, old, new):
    text = (run / CONFIG).read_text()
    assert old in text
    (run / CONFIG).write_text(text.replace(old, new))
    assert f"{run / CONFIG} is damaged" in one_sentence(kscn("info", run))


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": 3},
        {"sizes": []},
        {"sizes": ["60", "40", "20"]},
        {"sizes": [60, 40, 19]},
        {"sizes": [60.0, 40.0, 20.0]},
        {"sizes": [-1, 61, 60]},
        {"sizes": [60, 40, 20] + [0] * 2_000_000},
        {"dims": [2]},
        {"dims": None},
        {"seconds": float("inf")},
        {"seconds": float("nan")},
        {"seconds": "1"},
        {"seconds": -1},
        {"seconds": 10**18},
        {"seed": "s"},
        {"seed": 10**30},
        {"objective": []},
        {"iterations": 1.5},
        {"unit": 3},
        {"scores": 1},
        {"scores": {"acc": 1}},
        {"scores": {"acc": "1", "nmi": 1, "ari": 1}},
        {"chosen": 1},
        {"chosen": {}},
        {"chosen": CHOSEN | {"consistency": 2}},
        {"chosen": CHOSEN | {"method": None}},
        {"chosen": CHOSEN | {"rival": {"space": "s", "method": "m"}}},
        {"chosen": CHOSEN | {"tried": [1]}},
        {"chosen": CHOSEN | {"candidates": 0}},
        {"chosen": CHOSEN | {"refined": 1}},
        {"stage": ["done"]},
    ],
    ids=lambda change: str(change)[:40],
)
@pytest.mark.parametrize("command", ["info", "report"])
def test_a_result_of_other_types_is_named(one_sentence, kscn, run, command, change):
    (run / HISTORY).write_text(with_result(run, **change))
    assert f"{run / HISTORY} is damaged" in one_sentence(kscn(command, run))


@pytest.mark.parametrize("chosen", [None, CHOSEN])
def test_a_result_may_say_what_was_chosen(kscn, run, chosen):
    (run / HISTORY).write_text(with_result(run, chosen=chosen))
    told = kscn("info", run)
    assert told.exit_code == 0, told.output
    assert ("moderate" in told.output) == (chosen is not None)


@pytest.mark.parametrize(
    "content",
    [
        "index,label\n",
        "index,label\n" + "0,0\n" * 119 + "0,x\n",
        "index,label\n" + "0,0\n" * 119 + "0,3\n",
        "index,label\n" + "0,0\n" * 119 + "0,-2\n",
        "index,label\n" + "0,0\n" * 119 + f"0,{10**30}\n",
        "index,label\n" + "0,0\n" * 119 + "0,1_0\n",
        "\0" * 100,
        '"' * 100_001,
    ],
    ids=lambda content: repr(content)[-20:],
)
def test_labels_that_are_no_clusters_are_named(one_sentence, kscn, files, run, content):
    (run / "labels.csv").write_text(content)
    told = one_sentence(kscn("evaluate", run, "--labels", files / "y.npy"))
    assert f"{run / 'labels.csv'}" in told and "run `kscn fit` again" in told


@pytest.mark.parametrize(
    "content", [b"", b"[", b"{}", b"3", b"[" * 100_000, b"[]", b'["model"]', b"\xff", b"[[1]]"]
)
def test_a_list_of_moves_that_cannot_be_trusted_moves_nothing(
    one_sentence, kscn, files, run, content
):
    stage = run / rundir.UNFINISHED
    shutil.copytree(run, stage)
    (stage / rundir.COMPLETE).write_bytes(content)
    before = sorted(path.relative_to(run) for path in run.rglob("*"))
    fit = ("fit", files / "x.npy", "-k", 3, "-o", run, "--overwrite")
    for call in (("info", run), ("evaluate", run), ("fit", "--resume", run), fit):
        told = one_sentence(kscn(*call))
        assert f"{stage / rundir.COMPLETE} is damaged" in told and "delete it" in told
    assert sorted(path.relative_to(run) for path in run.rglob("*")) == before


def test_a_run_goes_on_without_a_word_on_its_model(kscn, run):
    stage = run / rundir.UNFINISHED
    stage.mkdir()
    (stage / CONFIG).write_text((run / CONFIG).read_text().replace("model = true", ""))
    assert kscn("fit", "--resume", run).exit_code == 0
    assert kscn("info", run).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n_clusters = 3", ""),
        ("n_clusters = 3", 'n_clusters = "three"'),
        ("n_clusters = 3", "n_clusters = 3\nnonsense = 1"),
        ("n_init = ", 'n_init = "x" #'),
        ("batch_size = ", "batch_size = [] #"),
        ('method = "k-subspaces"', 'method = "nonsense"'),
    ],
)
def test_a_run_with_other_settings_cannot_go_on(one_sentence, kscn, run, old, new):
    stage = run / rundir.UNFINISHED
    stage.mkdir()
    text = (run / CONFIG).read_text()
    assert old in text
    (stage / CONFIG).write_text(text.replace(old, new))
    one_sentence(kscn("fit", "--resume", run))
