"""Embeddings on disk, so that no image goes through a network twice.

One SQLite database holds the embeddings of all encoders in float16. An image is found by the sha256
of what it contains, so files may be renamed, added or left out. Every batch is one transaction: a
kill loses no more than the batch that was being computed.
"""

import hashlib
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kscn.data.named import cache_dir
from kscn.modelfile import max_bytes

# Pages of 16 KiB hold several embeddings, and `auto_vacuum` gives the pages of those that were
# removed back.
_TABLE = """
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = FULL;
CREATE TABLE IF NOT EXISTS embeddings (
    encoder BLOB, image BLOB, vector BLOB, PRIMARY KEY (encoder, image)
);
"""
_WAIT = 60.0  # seconds for another process to finish its transaction


class Cache:
    """The embeddings that one encoder made; `encoder` says what makes it the same as another.

    A cache that cannot be read or written costs a warning, and computing again.
    """

    def __init__(self, encoder: str) -> None:
        self._encoder = hashlib.sha256(encoder.encode()).digest()

    def read(self, digests: Iterable[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """The embeddings that are known, by the digests of their images."""
        find = "SELECT vector FROM embeddings WHERE encoder = ? AND image = ?"
        known: dict[bytes, NDArray[np.float16]] = {}
        with _faults_warned_of(), _transaction() as database:
            for image in digests:
                for (vector,) in database.execute(find, (self._encoder, image)):
                    known[image] = np.frombuffer(vector, np.float16)
        return known

    def write(self, made: Mapping[bytes, NDArray[np.float16]]) -> None:
        """Put embeddings in; beyond KSCN_EMBEDDING_BYTES, or 20 GiB, the oldest are forgotten."""
        rows = [(self._encoder, image, vector.tobytes()) for image, vector in made.items()]
        oldest = "SELECT rowid FROM embeddings ORDER BY rowid LIMIT ?"
        limit = max_bytes("KSCN_EMBEDDING_BYTES", 20 * 2**30)
        with _faults_warned_of(), _transaction() as database:
            if place().stat().st_size > limit:
                forget = f"DELETE FROM embeddings WHERE rowid IN ({oldest})"
                database.execute(forget, (2 * len(rows),))
            database.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", rows)


def place() -> Path:
    """Where embeddings are kept."""
    return cache_dir() / "embeddings.sqlite"


@contextmanager
def _transaction() -> Iterator[sqlite3.Connection]:
    """Changes that happen together or not at all."""
    place().parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(place(), timeout=_WAIT, isolation_level="IMMEDIATE")
    with closing(connection), connection:
        connection.executescript(_TABLE)
        yield connection


@contextmanager
def _faults_warned_of() -> Iterator[None]:
    """Go on after a fault of the database: what it holds can be computed again."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        warnings.warn(
            f"embeddings are not kept, because {place()} cannot be used ({error}): remove it, or "
            "set KSCN_CACHE to a folder with room.",
            stacklevel=4,
        )
