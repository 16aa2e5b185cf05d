"""`kscn reproduce` under SIGKILL: nothing finished is lost, repeated or changed."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

SEEDS = 4
# Writing takes a while, so that a kill can arrive in the middle of it.
SLOW_DISK = """
import os, time
sync = os.fsync
def slow(file):
    time.sleep(0.2)
    sync(file)
os.fsync = slow
"""


@pytest.fixture
def call(files, tmp_path):
    """Arguments of the command for a table of four runs."""
    table = tmp_path / "tiny.toml"
    table.write_text(
        f"[tiny]\nclusters = 3\n[tiny.planes]\nsource = '{files / 'xy.npz'}'\n"
        "k-subspaces = { acc = 90.0 }\n"
    )
    return ("reproduce", table, "--seeds", SEEDS)


def finished(out):
    """Every file under a final name of a run, which must be whole: name -> content."""
    found = {}
    for path in (out / "reproduce").glob("*.json") if out.exists() else ():
        found[path.name] = path.read_text()
        record = json.loads(found[path.name])
        assert {"config", "seed", "scores", "seconds", "versions"} <= set(record)
    return found


def half_written(out):
    return list(out.rglob(".*.part-*"))


def wait_until(condition, process):
    while not condition():
        assert process.poll() is None, "it ended before the moment of the kill"
        time.sleep(0.01)


def test_kills_at_any_moment_cost_at_most_the_run_that_was_going(call, kscn, tmp_path):
    reference, out = tmp_path / "reference", tmp_path / "out"
    undisturbed = kscn(*call, "--out", reference)
    assert undisturbed.exit_code == 0, undisturbed.output
    moments = [
        lambda: half_written(out) and not finished(out),  # in the middle of the first file
        lambda: len(finished(out)) == 1,  # between two runs
        lambda: len(finished(out)) == 2 and half_written(out),  # in the middle of the third file
        lambda: half_written(out / "tables"),  # when the tables are written
    ]
    known = {}
    for moment in moments:
        process = warm.Started(warm.COMMAND, [*call, "--out", out], before=SLOW_DISK)
        wait_until(moment, process)
        process.kill()  # SIGKILL
        output = process.communicate()[0]
        now = finished(out)
        assert known.items() <= now.items()  # no finished file is changed
        assert output.count("already there") <= len(known)
        known = now
    assert len(known) == SEEDS
    last = kscn(*call, "--out", out)
    assert last.exit_code == 0, last.output
    assert last.output.count("already there") == SEEDS
    assert finished(out) == known
    for name, text in finished(reference).items():
        assert json.loads(known[name])["scores"] == json.loads(text)["scores"]
    written = {path.name for path in (out / "tables").iterdir() if not path.name.startswith(".")}
    assert written == {"tiny.md", "tiny.html"}
    assert (out / "tables" / "tiny.html").read_text().rstrip().endswith("</html>")
    assert os.listdir(out / "reproduce").count("planes_k-subspaces_seed0.json") == 1
