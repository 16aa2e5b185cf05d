"""A run that was stopped, killed or short of space: what is left, and how it goes on."""

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import kscn as package
from kscn.errors import ModelFileError
from kscn.runs import directory as rundir
from kscn.runs.directory import HistoryFile

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

pytestmark = pytest.mark.usefixtures("short_choice")
# The same in a process of its own.
SHORT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import short
short.choices()
"""
NAMES = {"config.toml", "history.jsonl", "labels.csv", "model"}
DEEP = ("--method", "kscn-s", "--pretrain-epochs", 3, "--epochs", 3, "--n-init", 1)
BEST = ("--method", "best", "--epochs", 3, "--starts", 1, "--refine")
LINEAR = ("--method", "k-subspaces", "--subspace-dim", 3, "--n-init", 1)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DIGITS, FEW = 150, 100


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Some digits as a file, in images of 16 x 16."""
    path = tmp_path_factory.mktemp("digits") / "digits.npy"
    images = load_digits().images[:DIGITS].astype(np.uint8)
    np.save(path, images.repeat(2, axis=1).repeat(2, axis=2))
    return path


@pytest.fixture(scope="module")
def fits(digits):
    """Commands by name; the linear fit has to have some iterations to be stopped in."""
    shared = ("-k", 10, "--seed", 3)
    np.save(digits.with_name("few.npy"), np.load(digits)[:FEW, ::2, ::2])
    return {
        "best": ("fit", digits.with_name("few.npy"), "-k", 3, "--seed", 3, *BEST),
        "deep": ("fit", digits, *shared, *DEEP),
        "linear": ("fit", "digits", *shared, *LINEAR),
    }


@pytest.fixture(scope="module")
def whole(kscn, fits, tmp_path_factory):
    """Runs that nothing happened to, by name."""
    place = tmp_path_factory.mktemp("whole")
    for name, fit in fits.items():
        result = kscn(*fit, "-o", place / name)
        assert result.exit_code == 0, result.output
    return place


# A fit that waits in its second record of a stage, after states were written for the first.
WAITS = """
import time
from kscn.cli import interrupt
    from kscn.runs import directory as rundir
from kscn.runtime import checkpoint
checkpoint.SHARE = float("inf")
interrupt.GRACE = 60
seen = []
record = rundir.RunWriter.record
def record_and_wait(self, line):
    record(self, line)
    seen.append(line["stage"])
    if line["stage"] == {stage!r} and seen.count({stage!r}) == 2:
        (self.path / "waiting").touch()
        while (self.path / "waiting").exists():
            time.sleep(0.02)
rundir.RunWriter.record = record_and_wait
"""


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def records(run):
    return [json.loads(line) for line in (run / "history.jsonl").open()]


@pytest.mark.parametrize(
    ("name", "stage", "how"),
    [
        ("deep", "pretrain", signal.SIGTERM),
        ("linear", "fit", signal.SIGINT),
        ("deep", "fit", signal.SIGKILL),
        ("best", "fit", signal.SIGTERM),
    ],
)
def test_a_stopped_run_goes_on_to_the_same_labels(
    start, kscn, fits, whole, tmp_path, name, stage, how
):
    run = tmp_path / "run"
    process = start(*fits[name], "-o", run, before=SHORT + WAITS.format(stage=stage))
    wait_for(run / "waiting", process)
    for busy in (("fit", "--resume", run), (*fits["linear"], "-o", run, "--overwrite")):
        assert "another process is writing" in kscn(*busy).stderr
    process.send_signal(how)
    (run / "waiting").unlink()
    errors = process.communicate()[1]
    if how != signal.SIGKILL:  # else the lock dies with its process
        assert process.returncode == 128 + how
        assert errors.strip() == f"kscn: interrupted; go on with `kscn fit --resume {run}`"
    told = kscn("info", run)
    assert told.exit_code == 2
    assert f"go on with `kscn fit --resume {run}`" in told.stderr
    again = kscn(*fits[name], "-o", run)
    assert again.exit_code == 2
    assert "did not finish; go on with" in again.stderr
    result = kscn("fit", "--resume", run)
    assert result.exit_code == 0, result.output
    assert set(os.listdir(run)) == NAMES
    assert (run / "labels.csv").read_bytes() == (whole / name / "labels.csv").read_bytes()
    kept = [record["stage"] for record in records(run)]
    assert kept == [record["stage"] for record in records(whole / name)]
    assert records(run)[-1]["chosen"] == records(whole / name)[-1]["chosen"]


def test_a_lock_file_that_nobody_holds_is_in_nobodys_way(tmp_path):
    (tmp_path / rundir.LOCK).touch()
    with (
        rundir.locked(tmp_path),
        pytest.raises(ModelFileError, match="another process"),
        rundir.locked(tmp_path),
    ):
        pass
    assert os.listdir(tmp_path) == []
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)  # a lock of the directory itself is another matter
    with rundir.locked(tmp_path):
        pass
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


# No file can grow beyond this: the model's 30 kB do not fit, config and history do.
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))"


def test_a_disk_that_is_full_gets_one_sentence_and_loses_nothing(start, fits, whole, tmp_path):
    run = shutil.copytree(whole / "linear", tmp_path / "run")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    process = start(*fits["deep"], "-o", run, "--overwrite", before=FULL)
    errors = process.communicate()[1]
    assert process.returncode == 2, errors
    assert "File too large" in errors.strip().splitlines()[-1]
    assert {file: file.read_bytes() for file in before} == before
    assert not list(run.glob("model/*.part*"))


@pytest.fixture
def full(monkeypatch):
    """full(n): there is room for one byte of history, and for no more of it n times."""

    def begin(count):
        left = iter([1, *[0] * count])
        write = HistoryFile._write

        def write_little(self):
            room = next(left, None)
            if room is None:
                return write(self)
            os.write(self._file.fileno(), self._waiting[:room])
            self._waiting = self._waiting[room:]
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(HistoryFile, "_write", write_little)

    return begin


def test_a_disk_full_for_a_while_costs_no_line_of_the_history(kscn, fits, whole, full, tmp_path):
    full(3)
    result = kscn(*fits["linear"], "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    (warning,) = result.stderr.splitlines()
    path = tmp_path / "run" / ".unfinished" / "history.jsonl"
    assert f"warning: no history: cannot write {path}: No space left on device" in warning
    kept = [record["stage"] for record in records(tmp_path / "run")]
    assert kept == [record["stage"] for record in records(whole / "linear")]


def test_a_disk_full_to_the_end_leaves_a_run_to_go_on_with(
    kscn, fits, whole, full, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    full(10_000)
    result = kscn(*fits["linear"], "-o", run)
    assert result.exit_code == 2
    *_, last = result.stderr.splitlines()
    path = run / ".unfinished" / "history.jsonl"
    assert f"cannot write {path}: No space left on device" in last
    assert f"go on with `kscn fit --resume {run}`" in last
    monkeypatch.undo()
    assert kscn("fit", "--resume", run).exit_code == 0
    assert (run / "labels.csv").read_bytes() == (whole / "linear" / "labels.csv").read_bytes()
    kept = [record["stage"] for record in records(run)]
    assert kept == [record["stage"] for record in records(whole / "linear")]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a directory that nobody can write")
def test_a_directory_that_cannot_be_written_gets_one_sentence(kscn, fits, one_sentence, finished):
    # root is refused there too
    assert "cannot write" in one_sentence(kscn(*fits["linear"], "-o", "/proc/kscn-run"))
    predict = ("predict", finished, "digits", "-o", "/proc/labels.csv")
    assert "cannot write" in one_sentence(kscn(*predict))


# --- many kills ----------------------------------------------------------------------------------


def test_a_few_kills_at_random_moments_cost_nothing(fits):
    """The small version of `benchmarks/crash.py`, which runs this hundreds of times."""
    small = SHORT + f"sys.path.insert(0, {str(BENCHMARKS)!r}); import crash as c; "
    few = str(fits["best"][1])
    small += f"c.DATA, c.SAMPLES, c.CLUSTERS, c.KILLS_PER_RUN = {few!r}, {FEW}, 3, 1; "
    small += "c.FITS.pop('kscn-g'); c.main()"
    process = warm.Started(os.devnull, ["--kills", "4", "--dry"], before=small)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    for what in ("same labels", "labels whole", "model"):  # fits, predictions, saves
        assert what in output
