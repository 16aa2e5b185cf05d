"""A file of JSON lines that is only ever appended to, so that a kill at any moment costs nothing.

The first line says what the entries are about. Each entry is written with its newline in one call
and flushed to disk before it counts; a last line without newline was never acknowledged and is cut
off when the file is opened next. A lock keeps a second process away: of the file itself, which
needs no other file beside it, and would be emptied by the one of `filelock`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kscn.atomicfile import sync_directory
from kscn.errors import ModelFileError, reason

_FORMAT, _VERSION = "kscn-explore", 1
# A file may come from elsewhere. It is read whole, and its entries are flat: what holds more
# brackets than a list and a name can is not made into objects.
MOST_BYTES, _MOST_BRACKETS = 256 * 2**20, 256


class Journal:
    """Entries about one thing, in the order they were made; a file about another is refused.

    The file and its directory are made when the first entry is written. `entries` are those that
    were in it when it was opened.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._head = {"format": _FORMAT, "version": _VERSION, **about}
        self._most_bytes = most_bytes
        self._file: int | None = None
        self.entries: list[dict[str, Any]] = []
        if path.exists():
            self._file = self._open()

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one entry; it is on disk when this returns."""
        if self._file is None:
            self._file = self._open()
            if self.entries:
                self.close()
                raise ModelFileError(
                    f"another process has written {self.path} meanwhile; start again to see its "
                    "edits."
                )
        try:
            self._write(self._file, entry)
        except OSError as error:
            raise ModelFileError(
                f"cannot write {self.path}: {reason(error)}; make room for it, then repeat the "
                "edit."
            ) from error

    def close(self) -> None:
        """Let others write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self.path.parent.mkdir(exist_ok=True)
            with ExitStack() as opened:
                file = os.open(self.path, flags, 0o666)
                opened.callback(os.close, file)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.entries = list(self._read(file))
                if os.fstat(file).st_size == 0:
                    self._write(file, self._head)
                    sync_directory(self.path.parent)
                    sync_directory(self.path.parent.parent)
                opened.pop_all()
                return file
        except BlockingIOError:
            raise ModelFileError(
                f"another process is editing {self.path}; use the page that it serves, or end it."
            ) from None
        except OSError as error:
            raise ModelFileError(
                f"cannot open {self.path}: {reason(error)}; make it readable and writable, or "
                "explore a copy of the run."
            ) from error

    def _write(self, file: int, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        end = os.fstat(file).st_size
        if end + len(line) > self._most_bytes:
            raise ModelFileError(
                f"{self.path} is full; export the labels, and move it away to begin anew."
            )
        try:
            if os.write(file, line) != len(line):
                raise OSError("the disk is full")
            os.fsync(file)
        except OSError:
            os.ftruncate(file, end)  # half an entry must not stand before the next
            raise

    def _read(self, file: int) -> Iterator[dict[str, Any]]:
        size = os.fstat(file).st_size
        if size > self._most_bytes:
            raise ModelFileError(
                f"{self.path} is larger than the {self._most_bytes:,} bytes of a journal; move it "
                "away to begin anew."
            )
        content = os.pread(file, size, 0)
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(file, whole)
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                flat = line.count(b"[") + line.count(b"{") <= _MOST_BRACKETS
                entry = json.loads(line) if flat else None
            except (ValueError, RecursionError):
                entry = None
            if not isinstance(entry, dict):
                raise ModelFileError(
                    f"line {number} of {self.path} is damaged; repair it, or move the file away to "
                    "begin anew."
                )
            if number > 1:
                yield entry
            elif entry != self._head:
                raise ModelFileError(
                    f"{self.path} holds edits of another run; move it away to begin anew."
                )
