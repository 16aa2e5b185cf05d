"""`torchrun -m kscn fit`: one result, one voice, and no end without a word."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from warm import COMMAND

from kscn.cli import cli
from kscn.training.trainer import Trainer

pytestmark = pytest.mark.timeout(1200)
FIT = ("fit", "digits", "-k", 10, "--seed", 0, "--n-init", 1)
LONG = ("--method", "kscn-s", "--pretrain-epochs", 500, "--epochs", 1)


def workers(process):
    """The processes that torchrun started, by rank."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
    )
    return sorted(int(pid) for pid in listed.stdout.split())


def test_a_dead_process_is_named_and_the_run_goes_on_in_another_number(
    torchrun, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    process = torchrun(2, COMMAND, *FIT, *LONG, "-o", run, wait=False)
    while not (run / "checkpoints" / "state-000001").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    victim = workers(process)[-1]
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    errors = process.communicate()[1]
    assert time.monotonic() - began < 60
    assert process.returncode != 0
    told = [line for line in errors.splitlines() if line.startswith("kscn:")]
    assert len(told) == 1, errors
    assert "lost another process" in told[0] and f"go on with `kscn fit --resume {run}`" in told[0]
    go_on = ["fit", "--resume", str(run)]
    monkeypatch.setattr("kscn.training.trainer.Trainer.epoch", stopping(Trainer.epoch))
    result = CliRunner().invoke(cli, go_on)  # in one process
    assert result.exit_code == 143
    records = [json.loads(line) for line in (run / "history.jsonl").open()]
    assert [record["epoch"] for record in records] == list(range(1, len(records) + 1))
    assert records


def stopping(epoch):
    """An epoch of training in which somebody asks the process to stop."""

    def stopped(self, *args):
        os.kill(os.getpid(), signal.SIGTERM)
        return epoch(self, *args)

    return stopped


def test_a_process_that_hangs_is_lost_when_the_others_have_waited_too_long(torchrun):
    ended = torchrun(3, Path(__file__).with_name("hanging.py"))
    assert ended.returncode != 0
    told = [line for line in ended.errors.splitlines() if line.startswith("kscn:")]
    assert len(told) == 1, ended.errors
    assert told[0] == "kscn: lost another process, torchrun says which; go on."


def test_a_mistake_is_told_once(torchrun, tmp_path):
    ended = torchrun(2, COMMAND, "fit", "nonsense", "-k", 3, "-o", tmp_path / "run")
    assert ended.returncode != 0
    told = [line for line in ended.errors.splitlines() if line.startswith("kscn:")]
    assert len(told) == 1, ended.errors
    assert "nonsense does not exist; give a file" in told[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("start", ["warm", pytest.param("cold", marks=pytest.mark.slow)])
def test_two_processes_write_one_run_that_one_process_has_begun(
    torchrun, cold_torchrun, tmp_path, start
):
    """The first part in one process, the rest in two."""
    run, options = tmp_path / "run", ("--method", "k-subspaces", "--subspace-dim", "3")
    whole = CliRunner().invoke(cli, [*map(str, FIT), *options, "-o", str(tmp_path / "whole")])
    assert whole.exit_code == 0, whole.output
    run.mkdir()
    (run / "config.toml").write_text((tmp_path / "whole" / "config.toml").read_text())
    if start == "warm":
        ended = torchrun(2, COMMAND, "fit", "--resume", run)
    else:
        ended = cold_torchrun(2, "-m", "kscn", "fit", "--resume", run)
    assert ended.returncode == 0, ended.errors
    assert ended.output.count(f"wrote {run}/") == 1
    assert set(os.listdir(run)) == {"config.toml", "history.jsonl", "labels.csv", "model"}
    one, two = ((place / "labels.csv").read_text() for place in (tmp_path / "whole", run))
    assert one == two
