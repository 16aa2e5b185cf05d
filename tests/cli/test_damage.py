"""Run directories that are damaged or come from a stranger: one sentence, exit code 2."""

import json
import shutil

import pytest

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
    return "\n".join([*lines, json.dumps(json.loads(last) | changes), ""])


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
        (HISTORY, b'{"stage": "done"}\n'),
        (HISTORY, b'[[1]]\n3\n{"stage": "done"}\n'),
        (HISTORY, b"[" * 100_000 + b'\n{"stage": "done"}\n'),
        (HISTORY, b'\xff\n{"stage": "done"}\n'),
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
        ('method = "k-subspaces"', 'method = "x"\npreset = []'),
        ("created = ", "created = 1979-05-27T07:32:00Z\nother = "),
        ("samples = 120", "samples = -1"),
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
        {"sizes": [60, 40, 19]},
        {"sizes": [-1, 61, 60]},
        {"sizes": [60, 40, 20] + [0] * 2_000_000},
        {"dims": [2]},
        {"seconds": float("nan")},
        {"seconds": -1},
        {"seed": 10**30},
        {"objective": []},
        {"scores": {"acc": 1}},
        {"scores": {"acc": "1", "nmi": 1, "ari": 1}},
        {"chosen": CHOSEN | {"consistency": 2}},
        {"chosen": CHOSEN | {"rival": {"space": "s", "method": "m"}}},
        {"chosen": CHOSEN | {"tried": [1]}},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_result_of_other_types_is_named(one_sentence, kscn, run, change):
    (run / HISTORY).write_text(with_result(run, **change))
    assert f"{run / HISTORY} is damaged" in one_sentence(kscn("info", run))


@pytest.mark.parametrize(("consistency", "low"), [(0.38, True), (0.6, False)])
def test_a_choice_of_little_confidence_is_said_first(kscn, run, consistency, low):
    """In the summary, and at the top of the report."""
    chosen = CHOSEN | {"consistency": consistency}
    (run / HISTORY).write_text(with_result(run, chosen=chosen))
    told = kscn("info", run)
    assert told.exit_code == 0, told.output
    assert ("caution    low self-consistency, 0.38 of 1" in told.output) == low
    assert kscn("report", run).exit_code == 0
    page = (run / "report.html").read_text()
    assert ("Caution:" in page) == low
    assert not low or page.index("Caution:") < page.index('class="facts"')


@pytest.mark.parametrize(
    "content",
    [
        "index,label\n",
        "index,label\n" + "0,0\n" * 119 + "0,x\n",
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
    "content", [None, b"", b'{"stage": "done"}', b"[" * 100_000, b"[[1]]\n3\n", b'"text"', b"[1]\n"]
)
def test_a_history_without_its_last_line_is_of_a_run_that_did_not_finish(
    one_sentence, kscn, run, content
):
    (run / HISTORY).unlink()
    if content is not None:
        (run / HISTORY).write_bytes(content)
    assert f"go on with `kscn fit --resume {run}`" in one_sentence(kscn("info", run))
