"""A run that was stopped, killed or short of space: what is left, and how it goes on."""

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

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

NAMES = {"config.toml", "history.jsonl", "labels.csv", "model"}
DEEP = ("--method", "kscn-s", "--pretrain-epochs", 3, "--epochs", 3, "--n-init", 1)
BEST = ("--method", "best", "--epochs", 3, "--refine")
LINEAR = ("--method", "k-subspaces", "--subspace-dim", 3, "--n-init", 1)


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """Commands by name; the linear fit has to have some iterations to be stopped in."""
    place = tmp_path_factory.mktemp("digits")
    few = load_digits().images[:100].astype(np.uint8)
    np.save(place / "few.npy", few)
    return {
        "best": ("fit", place / "few.npy", "-k", 3, "--seed", 3, *BEST),
        "deep": ("fit", place / "few.npy", "-k", 10, "--seed", 3, *DEEP),
        "linear": ("fit", "digits", "-k", 10, "--seed", 3, *LINEAR),
    }


@pytest.fixture(scope="module")
def whole(kscn, fits, tmp_path_factory):
    """Runs that nothing happened to, by name."""
    place = tmp_path_factory.mktemp("whole")
    for name, fit in fits.items():
        result = kscn(*fit, "-o", place / name)
        assert result.exit_code == 0, result.output
    return place


# A fit that takes longer than a second for a record of a stage, so that it writes a state after it,
# and waits in the record that comes next.
WAITS = """
import time
from kscn.runs import directory as rundir
seen = []
listen = rundir.RunWriter.listen
def listen_and_wait(self, model, record):
    listen(self, model, record)
    seen.append(record["stage"])
    if record["stage"] == {stage!r}:
        time.sleep(1.2 if seen.count({stage!r}) == 1 else 0)
        if seen.count({stage!r}) == 2:
            (self.path / "waiting").touch()
        while (self.path / "waiting").exists():
            time.sleep(0.02)
rundir.RunWriter.listen = listen_and_wait
"""


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def records(run):
    return [json.loads(line) for line in (run / "history.jsonl").open()]


def assert_same(run, other):
    """The same labels, and a history of the same stages, of the same choice."""
    assert (run / "labels.csv").read_bytes() == (other / "labels.csv").read_bytes()
    stages = [[record["stage"] for record in records(path)] for path in (run, other)]
    assert stages[0] == stages[1]
    assert records(run)[-1]["chosen"] == records(other)[-1]["chosen"]


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
    process = start(*fits[name], "-o", run, before=WAITS.format(stage=stage))
    wait_for(run / "waiting", process)
    for busy in (("fit", "--resume", run), (*fits["linear"], "-o", run, "--overwrite")):
        assert "another process is writing" in kscn(*busy).stderr
    process.send_signal(how)
    (run / "waiting").unlink()
    errors = process.communicate()[1]
    if how != signal.SIGKILL:  # else the lock dies with its process
        assert process.returncode == 128 + how
        assert errors.strip() == f"kscn: interrupted; go on with `kscn fit --resume {run}`"
    assert list((run / "checkpoints").rglob("*.safetensors"))
    for refused in (kscn("info", run), kscn(*fits[name], "-o", run)):
        assert refused.exit_code == 2
        assert f"did not finish; go on with `kscn fit --resume {run}`" in refused.stderr
    result = kscn("fit", "--resume", run)
    assert result.exit_code == 0, result.output
    assert set(os.listdir(run)) == NAMES
    assert_same(run, whole / name)


def test_ctrl_c_ends_a_fit_in_the_middle_of_an_epoch(start, kscn, fits, tmp_path):
    run = tmp_path / "run"
    process = start(*fits["deep"], "-o", run, before=WAITS.format(stage="pretrain"))
    wait_for(run / "waiting", process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert (process.returncode, output) == (130, "")
    assert errors.strip() == f"kscn: interrupted; go on with `kscn fit --resume {run}`"


def test_a_lock_file_that_nobody_holds_is_in_nobodys_way(tmp_path):
    (tmp_path / rundir.LOCK).touch()
    with (
        rundir.locked(tmp_path),
        pytest.raises(ModelFileError, match="another process"),
        rundir.locked(tmp_path),
    ):
        pass
    assert os.listdir(tmp_path) == []


# --- what --resume takes and refuses -------------------------------------------------------------


def test_resume_has_its_arguments_from_the_run(kscn, tmp_path):
    for more in (("digits",), ("-k", 3), ("--trim", 0.1), ("--seed", 0), ("--overwrite",)):
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


def unfinished(run, finished, source, old="", new=""):
    """A run that stopped before its first state, with a change in its config."""
    run.mkdir()
    config = (finished / "config.toml").read_text()
    assert old in config
    config = config.replace(str(source), str(run.parent / "x.npy")).replace(old, new)
    (run / "config.toml").write_text(config)
    shutil.copy(source, run.parent / "x.npy")
    return run


def test_resume_says_what_is_wrong_with_a_directory(kscn, one_sentence, finished, files, tmp_path):
    assert "finished run" in one_sentence(kscn("fit", "--resume", finished))
    assert "not a kscn run" in one_sentence(kscn("fit", "--resume", tmp_path))
    assert "does not exist" in one_sentence(kscn("fit", "--resume", tmp_path / "nothing"))
    run = unfinished(tmp_path / "run", finished, files / "x.npy")
    np.save(tmp_path / "x.npy", np.load(files / "x.npy")[:100])
    assert "has 100 samples" in one_sentence(kscn("fit", "--resume", run))
    (run / "config.toml").write_text("[run")
    assert "config.toml is damaged" in one_sentence(kscn("fit", "--resume", run))


@pytest.mark.parametrize("history", [None, b"", b'{"stage": "fi', b"\0" * 100, b"[[1]]\n3\n"])
def test_a_run_without_a_state_begins_again(kscn, finished, files, tmp_path, history):
    """Whatever a power cut has made of the history so far."""
    run = unfinished(tmp_path / "run", finished, files / "x.npy")
    if history is not None:
        (run / "history.jsonl").write_bytes(history)
    (run / ".model.new-1234").mkdir()  # on its way to its name
    assert "did not finish" in kscn("info", run).stderr
    assert kscn("fit", "--resume", run).exit_code == 0
    assert_same(run, finished)
    assert set(os.listdir(run)) == NAMES


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
def test_a_run_with_other_settings_cannot_go_on(
    one_sentence, kscn, finished, files, tmp_path, old, new
):
    run = unfinished(tmp_path / "run", finished, files / "x.npy", old, new)
    one_sentence(kscn("fit", "--resume", run))


# --- kills while a run is finished or replaced ----------------------------------------------------


class Killed(BaseException):
    """Stands for a kill: nothing is tidied up after it."""


def killed_at(patched, step):
    """Raise `Killed` in place of the `step`-th change of a name on disk, and at all later ones."""
    left = iter(range(step))

    def counted(change):
        def changed(*args, **more):
            if not str(args[0]).endswith(rundir.LOCK) and next(left, None) is None:
                raise Killed  # but for the lock, which a kill sets free
            return change(*args, **more)

        return changed

    for name in ("rename", "replace", "unlink", "rmdir"):
        patched.setattr(os, name, counted(getattr(os, name)))


def test_a_kill_at_any_step_leaves_a_run_that_is_whole_or_goes_on(
    kscn, files, finished, tmp_path, monkeypatch
):
    """Over an older run: it is there as it was, or the new one can be gone on with, or is there."""
    fit = ("fit", files / "x.npy", "-k", 2, "--method", "k-subspaces", "--subspace-dim", 2)
    new = tmp_path / "new"
    assert kscn(*fit, "--seed", 1, "-o", new).exit_code == 0
    seen, done = set(), False
    for step in range(40):
        run = shutil.copytree(finished, tmp_path / f"run{step}")
        with monkeypatch.context() as patched:
            killed_at(patched, step)
            with suppress(Killed):
                done = kscn(*fit, "--seed", 1, "-o", run, "--overwrite").exit_code == 0
        try:
            opened = rundir.read_run(run)
        except ModelFileError as error:
            assert "did not finish" in str(error)
            seen.add("unfinished")
            assert kscn("fit", "--resume", run).exit_code == 0
            opened = rundir.read_run(run)
        n_clusters = opened.config["parameters"]["n_clusters"]
        expected = finished if n_clusters == 3 else new
        assert (run / "labels.csv").read_bytes() == (expected / "labels.csv").read_bytes()
        assert package.load_model(opened.model).n_clusters == n_clusters
        seen.add(n_clusters)
        if done:
            break
    assert seen == {"unfinished", 2, 3}
    assert set(os.listdir(run)) == NAMES


# --- no space, no permission ---------------------------------------------------------------------


# No file can grow beyond this: the model's 30 kB do not fit, config and history do.
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))"


def test_a_full_disk_gets_one_sentence_and_leaves_a_run_to_go_on_with(
    start, kscn, fits, whole, tmp_path
):
    run = tmp_path / "run"
    process = start(*fits["deep"], "-o", run, before=FULL)
    errors = process.communicate()[1]
    assert process.returncode == 2, errors
    assert "File too large" in errors.strip().splitlines()[-1]
    assert not list(run.glob("model/*.part*"))
    result = kscn("fit", "--resume", run)
    assert result.exit_code == 0, result.output
    assert_same(run, whole / "deep")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a directory that nobody can write")
def test_a_directory_that_cannot_be_written_gets_one_sentence(kscn, fits, one_sentence, finished):
    # root is refused there too
    assert "cannot write" in one_sentence(kscn(*fits["linear"], "-o", "/proc/kscn-run"))
    predict = ("predict", finished, "digits", "-o", "/proc/labels.csv")
    assert "cannot write" in one_sentence(kscn(*predict))


# --- many kills ----------------------------------------------------------------------------------


def test_a_few_kills_at_random_moments_cost_nothing(fits):
    """The small version of `benchmarks/robustness/crash.py`, which runs this hundreds of times."""
    scripts = Path(__file__).parents[2] / "benchmarks" / "robustness"
    small = f"import sys; sys.path.insert(0, {str(scripts)!r}); import crash; crash.main()"
    words = ["--kills", "4", "--dry", "--data", str(fits["best"][1]), "-k", "3"]
    words += ["--methods", "kscn-s", "k-subspaces", "best"]
    process = warm.Started(os.devnull, words, before=small)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    for what in ("same labels", "labels whole", "model"):  # fits, predictions, saves
        assert what in output
