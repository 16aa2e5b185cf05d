"""A file of JSON lines that is only ever appended to, so that a kill at any moment costs nothing.

The first line says what the entries are about. An entry is written with its newline in one call and
flushed to disk before it counts; a last line without newline was never acknowledged, and is cut off
by the next entry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
    were in it when it was opened. Who appends keeps others from it, by a lock on the run.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> None:
        self.path, self._most_bytes = path, most_bytes
        self._head = {"format": _FORMAT, "version": _VERSION, **about}
        self._end = 0  # bytes that are whole lines
        self.entries = list(self._read())

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one entry; it is on disk when this returns."""
        entries = [entry] if self._end else [self._head, entry]
        new = b"".join(json.dumps(e, separators=(",", ":")).encode() + b"\n" for e in entries)
        if self._end + len(new) > self._most_bytes:
            raise ModelFileError(
                f"{self.path} is full; export the labels, and move it away to begin anew."
            )
        try:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("ab") as file:
                file.truncate(self._end)
                file.write(new)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self.path.parent)
        except OSError as error:
            with suppress(OSError):  # half an entry must not stand before the next
                os.truncate(self.path, self._end)
            raise ModelFileError(
                f"cannot write {self.path}: {reason(error)}; make room or rights for it, then "
                "repeat the edit."
            ) from error
        self._end += len(new)

    def _read(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        if self.path.stat().st_size > self._most_bytes:
            raise ModelFileError(
                f"{self.path} is larger than the {self._most_bytes:,} bytes of a journal; move it "
                "away to begin anew."
            )
        content = self.path.read_bytes()
        self._end = content.rfind(b"\n") + 1
        for number, line in enumerate(content[: self._end].splitlines(), 1):
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
