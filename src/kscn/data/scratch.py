"""Pieces of bytes in a temporary file, for what takes long to make and is read many times."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Hashable
from threading import Lock


class Scratch:
    """What was put under a key; safe to use from several threads.

    Where the disk is full, what does not fit is not kept.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
        self._places: dict[Hashable, tuple[int, int]] = {}
        self._end = 0
        self._lock = Lock()

    def get(self, key: Hashable) -> bytes | None:
        """The content of a key, None if it is not kept."""
        start, length = self._places.get(key, (0, -1))
        return None if length < 0 else os.pread(self._file.fileno(), length, start)

    def put(self, key: Hashable, content: bytes) -> None:
        """Keep the content of a key."""
        with self._lock:
            try:
                # Not by a memory map: a write to one that finds the disk full ends the process.
                written = os.pwrite(self._file.fileno(), content, self._end)
            except OSError:
                return
            if written == len(content):
                self._places[key] = self._end, written
                self._end += written
