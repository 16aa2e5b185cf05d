"""The run directory of `kscn fit`: config.toml, history.jsonl, model/ and labels.csv.

Where files of a folder of images were left out, left-out.csv lists them.

Every file appears under its name when it is complete, and a run is finished when the last line of
its history is its result. Until then it is a run to go on with: config.toml says what is fitted and
checkpoints/ holds the states to go on from, so that a kill at any moment costs what was done since
the last one. A lock keeps two processes from writing into one directory.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from kscn.atomicfile import atomic_file, remove_directory, sync_directory
from kscn.errors import ModelFileError, reason
from kscn.runs.records import (
    AGAIN,
    is_finished,
    lines,
    read_config,
    read_history,
    records_before,
    write_config,
)
from kscn.runs.table import read_labels, read_names, write_labels, write_left_out

if TYPE_CHECKING:
    import numpy as np

    from kscn.data.images import Preparation

CONFIG, HISTORY, MODEL, LABELS = "config.toml", "history.jsonl", "model", "labels.csv"
LEFT_OUT, CHECKPOINTS, LOCK = "left-out.csv", "checkpoints", ".lock"
_PARTS = (CONFIG, HISTORY, LABELS, LEFT_OUT, MODEL, CHECKPOINTS)


# Writing -----------------------------------------------------------------------------------------


class RunWriter:
    """Writes a run into a directory that is locked; see `writing`."""

    def __init__(self, path: Path, config: Mapping[str, Any], overwrite: bool, resume: bool):
        self.path, self._config = path, config
        self._resumed, self._begun, self._heard = resume, False, False
        if not resume:
            self._refuse_to_replace(overwrite)
            _remove(path, CHECKPOINTS)
        self.replaces = not resume and (path / CONFIG).is_file()
        if not self.replaces:
            self._begin()

    def _refuse_to_replace(self, overwrite: bool) -> None:
        names = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")}
        other = "choose another directory with -o"
        if not overwrite and is_unfinished(self.path):
            again = f"go on with `kscn fit --resume {self.path}`"
            fault = f"holds a run that did not finish; {again}, or add --overwrite to begin anew"
        elif names and not overwrite:
            fault = f"is not empty; {other}, or add --overwrite to remove the run in it"
        elif names and CONFIG not in names:
            fault = f"holds files but no kscn run; {other} so that they are not lost"
        else:
            return
        raise ModelFileError(f"{self.path} {fault}.")

    def _begin(self) -> None:
        """Make this an unfinished run of its own config, if it is not, whatever was here before."""
        if self._begun:
            return
        if not self._resumed:
            _remove(self.path, HISTORY)  # first, because it says that a run is finished
        write_config(self.path / CONFIG, self._config)
        _remove(self.path, LABELS, LEFT_OUT, MODEL)
        self._begun = True

    @property
    def learnt(self) -> bool:
        """Whether there is anything that a later run could go on from."""
        return self._resumed or self._heard or any((self.path / CHECKPOINTS).glob("*"))

    def advice(self) -> str:
        """What is to be said when the fit was interrupted."""
        again = f"go on with `kscn fit --resume {self.path}`"
        return again if self.learnt else "nothing already on disk was lost"

    def listen(self, model: Any, record: Mapping[str, Any]) -> None:
        """Callback of an estimator: append a record to history.jsonl.

        A fit that goes on tells once more what it had done since its last state. The end of the fit
        writes all records: a line for which the disk has no room may be left out.
        """
        self._begin()
        history = self.path / HISTORY
        if self._resumed and not self._heard:
            with suppress(OSError), atomic_file(history) as file:
                file.write(lines(records_before(history, record)))
        self._heard = True
        with suppress(OSError), history.open("ab") as file:
            file.write(lines([record]))

    def finish(self, model: Any, samples: Any, result: Mapping[str, Any]) -> None:
        """Write model and labels, then the history whose last line is the result of the fit."""
        self._begin()
        model.save(self.path / MODEL)
        with atomic_file(self.path / LABELS) as file:
            write_labels(file, model.labels_, samples.names)
        if left_out := getattr(samples, "left_out", {}):
            with atomic_file(self.path / LEFT_OUT) as file:
                write_left_out(file, left_out)
        sync_directory(self.path)  # a power cut must not leave the last line without the rest
        with atomic_file(self.path / HISTORY) as file:
            file.write(lines([*model.history_, result]))
        remove_directory(self.path / CHECKPOINTS)

    def give_up(self) -> None:
        """Leave nothing of a fit that came to nothing."""
        if self._begun and not self.learnt:
            _remove(self.path, *_PARTS)


@contextmanager
def writing(
    path: Path, config: Mapping[str, Any], overwrite: bool = False, resume: bool = False
) -> Iterator[RunWriter]:
    """Write a run; while the context is open, no other process writes into the directory.

    `overwrite` allows for another run in the directory. It is removed when the new fit tells its
    first record: by then samples and settings have passed all checks. With `resume` the run in
    the directory is gone on with.
    """
    made_here = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(path, error) from error
    try:
        with locked(path):
            run = RunWriter(path, config, overwrite, resume)
            try:
                yield run
            except BaseException:
                run.give_up()
                raise
    finally:
        if made_here:
            with suppress(OSError):  # unless there is something in it
                path.rmdir()


def _remove(path: Path, *names: str) -> None:
    """Remove parts of a run, and what of them a process that was killed left under other names."""
    for name in names:
        for part in [path / name, *path.glob(f".{name}.*")]:
            if part.is_dir():
                remove_directory(part)
            else:
                part.unlink(missing_ok=True)


def _not_writable(path: Path, error: OSError) -> ModelFileError:
    return ModelFileError(
        f"cannot write to {path}: {reason(error)}; choose another directory with -o."
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep others from writing into a run directory; the lock ends with the process, however."""
    held = FileLock(path / LOCK, timeout=0, thread_local=False)
    try:
        held.acquire()
    except Timeout:
        raise ModelFileError(
            f"another process is writing to {path}; wait for it, or take another directory."
        ) from None
    except OSError as error:
        raise _not_writable(path, error) from error
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(held.lock_file)  # before the release: who waits for this one makes another
        held.release()


# Reading -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A run as read from disk; the labels are read when asked for."""

    path: Path
    config: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def model(self) -> Path:
        """The model directory."""
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
        if names is not None and (len(names) != count or not all(map(_is_inside, names))):
            raise ModelFileError(f"{path} is damaged (not {count:,} names of files); {AGAIN}")
        return names

    def preparation(self) -> "Preparation | None":
        """How the images of the run were brought to one size, None if they were not."""
        from kscn.data.images import Preparation

        used = self.config["data"].get("preparation")
        if used is None:
            return None
        values = used.get("values")
        return Preparation(used["size"], used["grey"], values and tuple(values))


def _is_inside(name: str) -> bool:
    """Whether a name is one of a file below a folder; a run may come from a stranger."""
    parts = Path(name).parts
    return bool(parts) and ".." not in parts and not Path(name).is_absolute()


def is_unfinished(path: Path) -> bool:
    """Whether a directory holds a run that began and did not end."""
    return (path / CONFIG).is_file() and not is_finished(path / HISTORY)


def read_run(path: Path) -> Run:
    """Open a finished run, or say in one sentence why it cannot be opened."""
    config = _config_of(path)
    if is_unfinished(path):
        raise ModelFileError(
            f"{path} holds a run that did not finish; go on with `kscn fit --resume {path}`. Its "
            f"history so far is in {path / HISTORY}."
        )
    return Run(path, config, read_history(path / HISTORY, config["data"]["samples"]))


def read_unfinished(path: Path) -> Run:
    """A run that did not finish, without history, or why there is none to go on with."""
    config = _config_of(path)
    if not is_unfinished(path):
        raise ModelFileError(f"{path} holds a finished run; there is nothing to resume.")
    return Run(path, config, [])


def _config_of(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ModelFileError(f"{path} does not exist; give the directory that `kscn fit` wrote.")
    if not (path / CONFIG).is_file():
        raise ModelFileError(
            f"{path} is not a kscn run: it has no {CONFIG}; give the directory that `kscn fit` "
            "wrote."
        )
    return read_config(path / CONFIG)
