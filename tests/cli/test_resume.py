"""A run that was stopped, killed or short of space: what is left, and how it goes on."""

import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import kscn as package
from kscn.cli import rundir
from kscn.errors import ModelFileError

NAMES = {"config.toml", "history.jsonl", "labels.csv", "model"}
FIT = ("digits", "-k", 10, "--seed", 3)
DEEP = ("--method", "kscn-s", "--pretrain-epochs", 3, "--epochs", 3, "--n-init", 1)
LINEAR = ("--method", "k-subspaces", "--subspace-dim", 3, "--n-init", 1)


@pytest.fixture(scope="module")
def whole(kscn, tmp_path_factory):
    """Runs that nothing happened to, by method."""
    place = tmp_path_factory.mktemp("whole")
    for name, options in (("deep", DEEP), ("linear", LINEAR)):
        result = kscn("fit", *FIT, *options, "-o", place / name)
        assert result.exit_code == 0, result.output
    return place


# A fit that waits in its second record of a stage, after states were written for the first.
WAITS = """
import sys, time
from kscn.cli import interrupt, main, rundir
from kscn.training import checkpoint
checkpoint.SHARE = float("inf")
interrupt.GRACE = 60
stage, seen = sys.argv[1], []
record = rundir.RunWriter.record
def record_and_wait(self, line):
    record(self, line)
    seen.append(line["stage"])
    if seen.count(stage) == 2:
        (self.path / "waiting").touch()
        time.sleep(3)
        (self.path / "waiting").unlink()
rundir.RunWriter.record = record_and_wait
sys.argv = ["kscn", *sys.argv[2:]]
main()
"""


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def records(run):
    return [json.loads(line) for line in (run / "history.jsonl").open()]


@pytest.mark.parametrize(
    ("name", "options", "stage", "how"),
    [
        ("deep", DEEP, "pretrain", signal.SIGTERM),
        ("linear", LINEAR, "fit", signal.SIGINT),
        ("deep", DEEP, "fit", signal.SIGKILL),
    ],
)
def test_a_stopped_run_goes_on_to_the_same_labels(
    start, kscn, whole, tmp_path, name, options, stage, how
):
    run = tmp_path / "run"
    process = start(stage, "fit", *FIT, *options, "-o", run, code=WAITS)
    wait_for(run / "waiting", process)
    for busy in (("--resume", run), (*FIT, *LINEAR, "-o", run, "--overwrite")):
        assert "another process is writing" in kscn("fit", *busy).stderr
    process.send_signal(how)
    errors = process.communicate()[1]
    if how == signal.SIGKILL:
        (run / "waiting").unlink()  # the lock died with its process
    else:
        assert process.returncode == 128 + how
        assert errors.strip() == f"kscn: interrupted; go on with `kscn fit --resume {run}`"
    told = kscn("info", run)
    assert told.exit_code == 2
    assert f"go on with `kscn fit --resume {run}`" in told.stderr
    again = kscn("fit", *FIT, *options, "-o", run)
    assert again.exit_code == 2
    assert "did not finish; go on with" in again.stderr
    result = kscn("fit", "--resume", run)
    assert result.exit_code == 0, result.output
    assert set(os.listdir(run)) == NAMES
    assert (run / "labels.csv").read_bytes() == (whole / name / "labels.csv").read_bytes()
    kept = [record["stage"] for record in records(run)]
    assert kept == [record["stage"] for record in records(whole / name)]


def test_a_lock_file_that_nobody_holds_is_in_nobodys_way(tmp_path):
    (tmp_path / rundir.LOCK).touch()
    held = rundir.lock(tmp_path)
    with pytest.raises(ModelFileError, match="another process"):
        rundir.lock(tmp_path)
    rundir.unlock(tmp_path, held)
    assert os.listdir(tmp_path) == []
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)  # a lock of the directory itself is another matter
    rundir.unlock(tmp_path, rundir.lock(tmp_path))
    os.close(other)


# --- what --resume refuses ----------------------------------------------------------------------


def test_resume_has_its_arguments_from_the_run(kscn, tmp_path):
    for more in (("digits",), ("-k", 3), ("--trim", 0.1), ("--overwrite",)):
        result = kscn("fit", "--resume", tmp_path, *more)
        assert result.exit_code == 2
        assert "--resume takes no other arguments" in result.stderr


@pytest.mark.parametrize(
    ("args", "what"),
    [(("-k", 3, "-o", "r"), "DATA"), (("digits", "-o", "r"), "-k"), (("digits", "-k", 3), "-o")],
)
def test_without_resume_the_usual_arguments_are_needed(kscn, args, what):
    result = kscn("fit", *args)
    assert result.exit_code == 2
    assert f"'{what}'" in result.stderr


def test_resume_says_what_is_wrong_with_a_directory(kscn, one_sentence, finished, tmp_path):
    assert "finished run" in one_sentence(kscn("fit", "--resume", finished))
    assert "not a kscn run" in one_sentence(kscn("fit", "--resume", tmp_path))
    assert "does not exist" in one_sentence(kscn("fit", "--resume", tmp_path / "nothing"))


def unfinished(run, finished, source):
    """A run that stopped before its first state: its config is all there is."""
    stage = run / rundir.UNFINISHED
    stage.mkdir(parents=True)
    config = (finished / "config.toml").read_text()
    (stage / "config.toml").write_text(config.replace(str(source), str(run.parent / "x.npy")))
    shutil.copy(source, run.parent / "x.npy")
    return run


def test_a_run_without_a_state_begins_again(kscn, finished, files, tmp_path):
    run = unfinished(tmp_path / "run", finished, files / "x.npy")
    assert kscn("fit", "--resume", run).exit_code == 0
    assert (run / "labels.csv").read_bytes() == (finished / "labels.csv").read_bytes()


def test_other_data_than_before_is_refused(kscn, one_sentence, finished, files, tmp_path):
    run = unfinished(tmp_path / "run", finished, files / "x.npy")
    np.save(tmp_path / "x.npy", np.load(files / "x.npy")[:100])
    assert "holds 100 samples" in one_sentence(kscn("fit", "--resume", run))
    assert (run / ".unfinished" / "config.toml").exists()


def test_a_damaged_config_is_named(kscn, one_sentence, finished, files, tmp_path):
    run = unfinished(tmp_path / "run", finished, files / "x.npy")
    (run / ".unfinished" / "config.toml").write_text("[run")
    assert "config.toml is damaged" in one_sentence(kscn("fit", "--resume", run))


# --- moving a finished run to its final names ----------------------------------------------------


class Killed(BaseException):
    """Stands for a kill: nothing is tidied up after it."""


@pytest.mark.parametrize("moves", range(5))
@pytest.mark.parametrize("older", [True, False])
def test_a_kill_between_two_moves_is_made_up_for(kscn, whole, tmp_path, monkeypatch, moves, older):
    run = tmp_path / "run"
    if older:
        shutil.copytree(whole / "linear", run)
    run.mkdir(exist_ok=True)
    shutil.copytree(whole / "deep", run / rundir.UNFINISHED)
    (run / rundir.UNFINISHED / rundir.COMPLETE).write_text(json.dumps(sorted(NAMES)))
    left = iter(range(moves))
    rename, replace = os.rename, os.replace

    def counted(move):
        def moved(*args):
            if next(left, None) is None:
                raise Killed
            move(*args)

        return moved

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", counted(rename))
        patched.setattr(os, "replace", counted(replace))
        with suppress(Killed):
            rundir.finish_moves(run)
    opened = rundir.read_run(run)  # whoever opens it finishes the moves
    assert opened.config["run"]["method"] == "kscn-s"
    assert (run / "labels.csv").read_bytes() == (whole / "deep" / "labels.csv").read_bytes()
    assert type(package.load_model(opened.model)).__name__ == "KSCN"
    assert set(os.listdir(run)) == NAMES


# --- no space, no permission ---------------------------------------------------------------------


def test_a_disk_that_is_full_gets_one_sentence_and_loses_nothing(whole, tmp_path):
    run = shutil.copytree(whole / "linear", tmp_path / "run")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    command = [sys.executable, "-m", "kscn", "fit", *FIT, *DEEP, "-o", run, "--overwrite"]
    result = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        # No file can grow beyond this: the model's 30 kB do not fit, config and history do.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000)),
    )
    assert result.returncode == 2, result.stderr
    assert "File too large" in result.stderr.strip().splitlines()[-1]
    assert {file: file.read_bytes() for file in before} == before
    assert not list(run.glob("model/*.part*"))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a directory that nobody can write")
def test_a_directory_that_cannot_be_written_gets_one_sentence(kscn, one_sentence, finished):
    fit = ("fit", *FIT, *LINEAR, "-o", "/proc/kscn-run")  # root is refused there too
    assert "cannot write" in one_sentence(kscn(*fit))
    predict = ("predict", finished, "digits", "-o", "/proc/labels.csv")
    assert "cannot write" in one_sentence(kscn(*predict))


# --- many kills ----------------------------------------------------------------------------------


def test_a_few_kills_at_random_moments_cost_nothing():
    """The small version of `benchmarks/crash.py`, which runs this hundreds of times."""
    script = Path(__file__).parents[2] / "benchmarks" / "crash.py"
    result = subprocess.run(
        [sys.executable, str(script), "--kills", "6", "--dry"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
