"""history.jsonl while a run goes on: a disk without room costs lines of it, never the fit."""

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kscn.errors import ModelFileError, reason


class HistoryFile:
    """One line of JSON per record, on disk as soon as it is told.

    What cannot be written waits for the next record: there may be room again by then.

    Parameters
    ----------
    path : Path
        The file, begun anew.

    Attributes
    ----------
    begun : bool
        Whether anything was told.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun = False
        self._file = path.open("wb", buffering=0)
        self._waiting = b""

    def append(self, record: Mapping[str, Any]) -> None:
        """Tell one more record; it can be read while the run goes on."""
        self._waiting += _line(record)
        self._try_to_write()

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Begin again with these records: those that a state brought along."""
        self._file.seek(0)
        self._file.truncate()
        self._waiting = b"".join(map(_line, records))
        self._try_to_write()

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

    def _try_to_write(self) -> None:
        from kscn.runtime.checkpoint import CheckpointWarning

        self.begun = True
        try:
            self._write()
        except OSError as error:
            warnings.warn(
                f"no history: cannot write {self.path}: {reason(error)}; the fit goes "
                "on, and tells the rest when there is room.",
                CheckpointWarning,
                stacklevel=3,
            )

    def _write(self) -> None:
        while self._waiting:
            written = self._file.write(self._waiting)
            self._waiting = self._waiting[written:]


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(record), default=_plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    """What JSON takes in place of numpy's and torch's scalars and arrays."""
    return value.tolist() if hasattr(value, "tolist") else float(value)
