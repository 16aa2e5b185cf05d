"""The run directory of `kscn fit`: config.toml, history.jsonl, model/ and labels.csv.

Where files of a folder of images were left out, left-out.csv lists them; encoder/ is a copy of the
encoder, if one was asked for.

Everything is written into `.unfinished/` inside the run directory first and moved to its final
name when the fit is done. Until then an older run in the same directory is untouched, and a kill
at any moment never leaves a half file under a final name; what an interrupted run needs to go on
(config.toml, history.jsonl, and the states in checkpoints/) stays. Once all is there,
`.unfinished/complete` says so, and moves that a kill cut short are made up for by whoever opens the
directory next. A lock keeps two processes from writing into one directory.
"""

import json
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from kscn.atomicfile import atomic_file
from kscn.errors import ModelFileError, reason
from kscn.runs.records import AGAIN, read_config, read_entries, read_history
from kscn.runs.table import read_labels, read_names, write_labels, write_left_out

if TYPE_CHECKING:
    import numpy as np

    from kscn.data.images import Preparation

CONFIG, HISTORY, MODEL, LABELS = "config.toml", "history.jsonl", "model", "labels.csv"
LEFT_OUT, ENCODER = "left-out.csv", "encoder"
UNFINISHED, CHECKPOINTS, LOCK = ".unfinished", "checkpoints", ".lock"
# In `.unfinished/`, a list of what the run consists of, written when all of that is there.
COMPLETE = "complete"
# config.toml moves last: a directory that has it has everything else.
_ENTRIES = (MODEL, ENCODER, LABELS, LEFT_OUT, HISTORY, CONFIG)


class BusyError(ModelFileError):
    """Another process writes into the directory."""


class RunWriter:
    """Writes a run; as a context it publishes on success and keeps the older run otherwise.

    A run that is already in the directory may be replaced (`overwrite`), or be one that did not
    finish and is gone on with (`resume`).
    """

    def __init__(self, path: Path, overwrite: bool, resume: bool = False) -> None:
        self.path = path
        self.stage = path / UNFINISHED
        self._resumed = resume
        self._made_here = not path.exists()
        try:
            path.mkdir(parents=True, exist_ok=True)
            with ExitStack() as opened:
                opened.enter_context(locked(path))
                finish_moves(path)
                if not resume:
                    self._refuse_to_replace(overwrite)
                    _forget(path)
                self.stage.mkdir(exist_ok=True)
                self._history = HistoryFile(self.stage / HISTORY)
                self._lock = opened.pop_all()
        except OSError as error:
            raise ModelFileError(
                f"cannot write to {path}: {reason(error)}; choose another directory with -o."
            ) from error

    def _refuse_to_replace(self, overwrite: bool) -> None:
        names = {entry.name for entry in self.path.iterdir()} - {UNFINISHED, CHECKPOINTS, LOCK}
        other = "choose another directory with -o"
        if not overwrite and is_unfinished(self.path) and self._has_states():
            again = f"go on with `kscn fit --resume {self.path}`"
            fault = f"holds a run that did not finish; {again}, or add --overwrite to begin anew"
        elif names and not overwrite:
            fault = f"is not empty; {other}, or add --overwrite to replace the run in it"
        elif names and CONFIG not in names:
            fault = f"holds files but no kscn run; {other} so that they are not lost"
        else:
            return
        raise ModelFileError(f"{self.path} {fault}.")

    @property
    def learnt(self) -> bool:
        """Whether there is anything that a later run could go on from."""
        return self._resumed or self._history.begun or self._has_states()

    def _has_states(self) -> bool:
        states = self.path / CHECKPOINTS
        return states.is_dir() and any(states.iterdir())

    def write_config(self, config: Mapping[str, Mapping[str, Any]]) -> None:
        """Write config.toml, one table per key."""
        import tomli_w

        with atomic_file(self.stage / CONFIG) as file:
            file.write(tomli_w.dumps(plain(config)).encode("utf-8", "replace"))

    def listen(self, model: Any, record: Mapping[str, Any]) -> None:
        """Callback of an estimator: write down what it tells, and first what it told before."""
        if self._resumed and not self._history.begun:
            self.rewrite_history(model.history_)
        else:
            self.record(record)

    def record(self, record: Mapping[str, Any]) -> None:
        """Append one line to history.jsonl; it can be read while the run goes on."""
        self._history.write([record])

    def rewrite_history(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Begin history.jsonl again, with these records: those that a state brought along."""
        self._history.write(records, anew=True)

    def write_labels(self, labels: "np.ndarray", samples: Any) -> None:
        """Write labels.csv, and left-out.csv if there are files that cannot be read."""
        with atomic_file(self.stage / LABELS) as file:
            write_labels(file, labels, samples.names)
        if left_out := getattr(samples, "left_out", {}):
            with atomic_file(self.stage / LEFT_OUT) as file:
                write_left_out(file, left_out)

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        nothing_learnt = kind is not None and not self.learnt
        try:
            self._history.close(must=kind is None)
            if kind is None:
                self._publish()
        finally:
            if nothing_learnt:
                _forget(self.path)
            self._lock.close()
            if nothing_learnt and self._made_here:
                self.path.rmdir()

    def _publish(self) -> None:
        entries = [name for name in _ENTRIES if (self.stage / name).exists()]
        with atomic_file(self.stage / COMPLETE) as file:
            file.write(json.dumps(entries).encode())
        finish_moves(self.path)


class HistoryFile:
    """history.jsonl while a run goes on: a disk without room costs lines of it, never the fit.

    What cannot be written waits for the next record: there may be room again by then. `begun` says
    whether there was any.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun = False
        self._file = path.open("wb", buffering=0)
        self._waiting = b""

    def write(self, records: Iterable[Mapping[str, Any]], anew: bool = False) -> None:
        """Write a line of JSON per record, after those that are there or instead of them."""
        from kscn.runtime.checkpoint import CheckpointWarning

        self.begun = True
        if anew:
            self._waiting = b""
            self._file.seek(0)
            self._file.truncate()
        for record in records:
            self._waiting += json.dumps(dict(record), default=_jsonable).encode() + b"\n"
        try:
            self._write()
        except OSError as error:
            warnings.warn(
                f"no history: cannot write {self.path}: {reason(error)}; the fit goes "
                "on, and tells the rest when there is room.",
                CheckpointWarning,
                stacklevel=3,
            )

    def close(self, must: bool) -> None:
        """Flush to disk; raise ModelFileError if there `must` be a whole history and is none."""
        try:
            self._write()
            os.fsync(self._file.fileno())
        except OSError as error:
            if must:
                raise ModelFileError(
                    f"cannot write {self.path}: {reason(error)}; make room, and go on "
                    f"with `kscn fit --resume {self.path.parents[1]}`."
                ) from error
        finally:
            self._file.close()

    def _write(self) -> None:
        while self._waiting:
            written = self._file.write(self._waiting)
            self._waiting = self._waiting[written:]


def _jsonable(value: Any) -> Any:
    """What JSON takes in place of numpy's and torch's scalars and arrays."""
    return value.tolist() if hasattr(value, "tolist") else float(value)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep others from writing into a run directory; the lock ends with the process, however."""
    held = FileLock(path / LOCK, timeout=0, thread_local=False)
    try:
        held.acquire()
    except Timeout:
        raise BusyError(
            f"another process is writing to {path}; wait for it, or choose another directory "
            "with -o."
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(held.lock_file)  # before the release: who waits for this one makes another
        held.release()


def finish_moves(path: Path) -> None:
    """Move a complete run to its final names, also where another process was killed at that."""
    stage = path / UNFINISHED
    if not (stage / COMPLETE).is_file():
        return
    from kscn.atomicfile import replace_directory, sync_directory

    required = {LABELS, HISTORY, CONFIG}
    entries = read_entries(stage / COMPLETE, required, _ENTRIES)
    sync_directory(stage)
    for name in _ENTRIES:
        new, final = stage / name, path / name
        if name not in entries:
            # Such as a model: that of an older run must not stay beside labels of this one.
            shutil.rmtree(final, ignore_errors=True)
            with suppress(OSError):
                final.unlink(missing_ok=True)
        elif new.is_dir():
            replace_directory(new, final)
        elif new.exists():  # else it was moved already
            os.replace(new, final)
    sync_directory(path)
    for rest in path.glob(f".{MODEL}.old-*"):
        shutil.rmtree(rest, ignore_errors=True)
    _forget(path)


def _forget(path: Path) -> None:
    """Remove what a run needs on its way only; no state is ever half there under its name."""
    stage = path / UNFINISHED
    stage.mkdir(exist_ok=True)
    shutil.rmtree(stage / CHECKPOINTS, ignore_errors=True)  # of a process killed at this
    with suppress(OSError):
        os.rename(path / CHECKPOINTS, stage / CHECKPOINTS)
    shutil.rmtree(stage, ignore_errors=True)


def is_unfinished(path: Path) -> bool:
    """Whether a directory holds a run that began and did not end."""
    return (path / UNFINISHED / CONFIG).is_file()


@dataclass(frozen=True)
class Run:
    """A finished run as read from disk; the labels and the model are read when asked for."""

    path: Path
    config: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def has_model(self) -> bool:
        """Whether the method leaves a model; some baselines leave labels only."""
        return bool(self.config["run"]["model"])

    @property
    def model(self) -> Path:
        """The model directory."""
        if not self.has_model:
            raise ModelFileError(
                f"{self.path} has no model: {self.config['run']['method']} cannot label new "
                "samples; fit without --method for that."
            )
        return self.path / MODEL

    @property
    def result(self) -> dict[str, Any]:
        """The last line of the history: objective, iterations, seconds, sizes, scores."""
        return self.history[-1]

    def labels(self) -> "np.ndarray":
        """The cluster of every training sample, below zero for those that are in none."""
        path, n_clusters = self.path / LABELS, len(self.result["sizes"])
        labels = read_labels(path, self.config["data"]["samples"], AGAIN)
        if labels.dtype.kind not in "iu" or labels.min() < -1 or labels.max() >= n_clusters:
            raise ModelFileError(
                f"{path} is damaged (other labels than the numbers 0 to {n_clusters - 1}); {AGAIN}"
            )
        return labels

    def names(self) -> list[str] | None:
        """The file of every training sample, as it is called from the folder; None if not known."""
        path, count = self.path / LABELS, self.config["data"]["samples"]
        names = read_names(path, count)
        if names is None:
            return None
        outside = next((name for name in names if not _is_inside(name)), None)
        if outside is not None or len(names) != count:
            fault = f"{len(names)} names" if outside is None else f"{outside!r} is no file name"
            raise ModelFileError(f"{path} is damaged ({fault}); {AGAIN}")
        return names

    def preparation(self) -> "Preparation | None":
        """How the images of the run were brought to one size, None if they were not."""
        from kscn.data.images import Preparation

        found = self.config["data"].get("preparation")
        return None if found is None else Preparation(**found)


def _is_inside(name: str) -> bool:
    """Whether a name is one of a file below a folder; a run may come from a stranger."""
    parts = Path(name).parts
    return bool(parts) and ".." not in parts and not Path(name).is_absolute()


def read_run(path: Path) -> Run:
    """Open a run directory, or say in one sentence why it cannot be opened."""
    if not path.exists():
        raise ModelFileError(f"{path} does not exist; give the directory that `kscn fit` wrote.")
    if (path / UNFINISHED / COMPLETE).is_file():
        # Another process may be at it, and the directory may be read-only.
        with suppress(OSError, BusyError), locked(path):
            finish_moves(path)
    if not (path / CONFIG).is_file():
        fault = f"is not a kscn run: it has no {CONFIG}; give the directory that `kscn fit` wrote"
        if (path / UNFINISHED).is_dir():
            fault = (
                f"holds a run that did not finish; go on with `kscn fit --resume {path}`. Its "
                f"history so far is in {path / UNFINISHED}"
            )
        raise ModelFileError(f"{path} {fault}.")
    config = read_config(path / CONFIG)
    return Run(path, config, read_history(path / HISTORY, config["data"]["samples"]))


def read_unfinished(path: Path) -> Run:
    """A run that did not finish, without history, or why there is none to go on with."""
    if not is_unfinished(path):
        read_run(path)  # says what is wrong, if something is
        raise ModelFileError(f"{path} holds a finished run; there is nothing to resume.")
    return Run(path, read_config(path / UNFINISHED / CONFIG), [])


def model_of(path: Path) -> Path:
    """The model directory of a run, or the path itself if it is a model already."""
    if not path.exists():
        raise ModelFileError(f"{path} does not exist; give a run of `kscn fit` or a saved model.")
    inside = path / MODEL
    return (inside if inside.is_dir() else path).absolute()


def plain(value: Any) -> Any:
    """What TOML can hold of a value: text for what it does not know, and nothing for None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, bool | int | float) else str(value)
