"""Embeddings on disk, so that no image goes through a network twice.

One SQLite database holds the embeddings of all encoders in float16. An image is found by the sha256
of what it contains, so files may be renamed, added or left out. Every batch is one transaction: a
kill loses no more than the batch that was being computed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from kscn.data.named import cache_dir
from kscn.errors import InputError
from kscn.modelfile import max_bytes

Result = TypeVar("Result")

MOST_BYTES = 20 * 2**30
_SUM = 4  # bytes of the checksum behind an embedding
_WAIT = 60.0  # seconds for another process to finish its transaction
# `used` counts days, so that reading writes at most once a day. Pages of 16 KiB hold several
# embeddings, and `auto_vacuum` gives the pages of those that were removed back.
_TABLES = """
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = FULL;
CREATE TABLE IF NOT EXISTS encoders (key TEXT PRIMARY KEY, name TEXT, sha256 TEXT);
CREATE TABLE IF NOT EXISTS embeddings (
    encoder TEXT, image BLOB, vector BLOB, used INTEGER, PRIMARY KEY (encoder, image)
);
CREATE INDEX IF NOT EXISTS by_use ON embeddings (used);
"""
_ONE = "SELECT CAST(vector AS BLOB) FROM embeddings WHERE encoder = ? AND image = ?"
_USE = "UPDATE embeddings SET used = ?3 WHERE encoder = ?1 AND image = ?2 AND used < ?3"
_ENTRIES = """
SELECT name, sha256, count(*), sum(length(vector)) AS bytes
FROM encoders JOIN embeddings ON encoder = key GROUP BY key ORDER BY bytes DESC
"""
_FORGET = """
DELETE FROM embeddings WHERE rowid IN (SELECT rowid FROM embeddings ORDER BY used, rowid LIMIT ?)
"""


class Cache:
    """The embeddings that one encoder made.

    `about` is what makes an encoder the same as another, as plain values; its `name` is for people.
    A cache that cannot be read or written costs a warning, and computing again.
    """

    def __init__(self, about: dict[str, Any], enabled: bool = True) -> None:
        self._about = about
        self._enabled = enabled
        same = {key: value for key, value in about.items() if key != "name"}
        self._key = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()

    def read(self, digests: Iterable[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """The embeddings that are known, by the digests of their images."""
        known: dict[bytes, NDArray[np.float16]] = {}

        def work(database: sqlite3.Connection) -> None:
            for image in digests:
                for (content,) in database.execute(_ONE, (self._key, image)):
                    vector = (content or b"")[:-_SUM]
                    if content == _with_sum(image, vector):
                        known[image] = np.frombuffer(vector, np.float16)
            today = _today()
            database.executemany(_USE, [(self._key, image, today) for image in known])

        if self._enabled and place().exists():
            self._try(work)
        return known

    def write(self, made: Mapping[bytes, NDArray[np.float16]]) -> None:
        """Put embeddings in; without room for them, those not used for longest are forgotten."""
        today = _today()
        contents = {image: _with_sum(image, own.tobytes()) for image, own in made.items()}
        rows = [(self._key, image, content, today) for image, content in contents.items()]

        def work(database: sqlite3.Connection) -> None:
            if place().stat().st_size + sum(map(len, contents.values())) > limit():
                database.execute(_FORGET, (2 * len(rows),))
            encoder = (self._key, self._about["name"], self._about["sha256"])
            database.execute("INSERT OR REPLACE INTO encoders VALUES (?, ?, ?)", encoder)
            database.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?)", rows)

        if self._enabled and rows:
            self._try(work)

    def _try(self, work: Callable[[sqlite3.Connection], None]) -> None:
        try:
            _transaction(work)
        except (OSError, InputError) as error:
            self._enabled = False
            warnings.warn(
                f"embeddings are not kept: {error} Set KSCN_CACHE to a directory with room.",
                stacklevel=3,
            )


def entries() -> list[tuple[str, str, int, int]]:
    """Name and sha256 of every encoder, how many embeddings it has and their bytes; most first."""
    if not place().exists():
        return []
    return _transaction(lambda database: database.execute(_ENTRIES).fetchall())


def clear() -> int:
    """Remove all embeddings; how many bytes they took."""
    freed = sum(size for *_, size in entries())
    if freed:
        with _lock():
            place().unlink()
            place().with_suffix(".damaged").unlink(missing_ok=True)
    return freed


def place() -> Path:
    """Where embeddings are kept."""
    return cache_dir() / "embeddings.sqlite"


def limit() -> int:
    """The most bytes of all embeddings: KSCN_EMBEDDING_BYTES, or 20 GiB."""
    return max_bytes("KSCN_EMBEDDING_BYTES", MOST_BYTES)


def _transaction(work: Callable[[sqlite3.Connection], Result]) -> Result:
    """What `work` makes of the database; of a new one where the old one is damaged."""
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True)
    # One process at a time, so that none puts aside what another one has begun.
    with _lock():
        try:
            return _committed(path, work)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            # What the disk or its rights say is operational, but not that a table is not there.
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:
                raise InputError(f"{path} cannot be used: {error}.") from error
            aside = path.with_suffix(".damaged")
            os.replace(path, aside)
            warnings.warn(f"{path} was damaged ({error}) and is now {aside}.", stacklevel=4)
            return _committed(path, work)


def _committed(path: Path, work: Callable[[sqlite3.Connection], Result]) -> Result:
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_TABLES)
        return work(database)


def _lock() -> FileLock:
    return FileLock(place().with_suffix(".lock"), timeout=_WAIT)


def _with_sum(image: bytes, vector: bytes) -> bytes:
    """What is kept of an embedding: the database itself does not see when bytes of it change."""
    return vector + zlib.crc32(image + vector).to_bytes(_SUM, "little")


def _today() -> int:
    return int(time.time() // 86_400)
