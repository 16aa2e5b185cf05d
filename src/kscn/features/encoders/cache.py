"""Embeddings on disk, so that no image goes through a network twice.

Every encoder, with its preprocessing, has a folder of shards. A shard holds the sha256 of some
images and their embeddings in float16, and appears under its name when it is complete: a kill costs
no more than the shard that was being filled. Images are found by what they contain, so files may be
renamed, added or left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from kscn.atomicfile import atomic_file
from kscn.data.catalog import cache_dir
from kscn.errors import InputError
from kscn.modelfile import max_bytes
from kscn.modelparts import check_array

MOST_BYTES = 20 * 2**30
DESCRIPTION = "encoder.json"
_DIGEST = 32  # bytes of a sha256


@dataclass(frozen=True)
class Entry:
    """The embeddings of one encoder: what it is called, how many there are, and their bytes."""

    name: str
    sha256: str
    images: int
    bytes: int


class Cache:
    """The embeddings (dim,) that one encoder made.

    `about` is what makes an encoder the same as another, as plain values; its `name` is for people.
    """

    def __init__(self, about: dict[str, Any], dim: int, enabled: bool = True) -> None:
        self._about = about
        self._dim = dim
        self._enabled = enabled
        same = {key: value for key, value in about.items() if key != "name"}
        digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
        self._folder = place() / digest[:32]

    def read(self, digests: Iterable[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """The embeddings that are known, by the digests of their images."""
        wanted = set(digests)
        found: dict[bytes, NDArray[np.float16]] = {}
        for path in _shards(self._folder) if self._enabled else ():
            # The images of a damaged shard are computed again.
            with (
                suppress(OSError, SafetensorError, ValueError, KeyError),
                safe_open(path, framework="numpy") as shard,
            ):
                digests_here = shard.get_tensor("keys")
                check_array("keys", digests_here, (None, _DIGEST), ("uint8",))
                keys = [key.tobytes() for key in digests_here]
                here = [row for row, key in enumerate(keys) if key in wanted]
                if not here:
                    continue
                vectors = shard.get_tensor("embeddings")
                check_array("embeddings", vectors, (len(keys), self._dim), ("float16",))
                found |= {keys[row]: vectors[row] for row in here}
                os.utime(path)  # used last
        return found

    def write(self, made: Mapping[bytes, NDArray[np.float16]]) -> None:
        """Put embeddings in, as one shard; a disk that is full costs the cache only."""
        if not self._enabled or not made:
            return
        keys = np.frombuffer(b"".join(made), np.uint8).reshape(len(made), _DIGEST)
        name = hashlib.sha256(keys.tobytes()).hexdigest()[:32]
        content = save({"keys": keys, "embeddings": np.stack(list(made.values()))})
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not (self._folder / DESCRIPTION).exists():
                with atomic_file(self._folder / DESCRIPTION) as file:
                    file.write(json.dumps(self._about).encode())
            _make_room(len(content))
            with atomic_file(self._folder / f"{name}.safetensors") as file:
                file.write(content)
        except (OSError, InputError) as error:
            self._enabled = False
            warnings.warn(
                f"embeddings are not kept: {error} Set KSCN_CACHE to a directory with room.",
                stacklevel=2,
            )


def entries() -> list[Entry]:
    """What the cache holds, the largest first."""
    found = []
    for folder in _folders():
        shards = _shards(folder)
        images = 0
        for path in shards:
            with suppress(OSError, SafetensorError, KeyError), safe_open(path, "numpy") as shard:
                images += shard.get_slice("keys").get_shape()[0]
        name, sha256 = "?", "?"
        with suppress(OSError, ValueError, KeyError, TypeError):
            about = json.loads((folder / DESCRIPTION).read_bytes()[: 2**16])
            name, sha256 = str(about["name"]), str(about["sha256"])
        found.append(Entry(name, sha256, images, sum(_size_and_use(path)[0] for path in shards)))
    return sorted(found, key=lambda entry: -entry.bytes)


def clear() -> int:
    """Remove all embeddings; how many bytes that gave back."""
    freed = sum(entry.bytes for entry in entries())
    for folder in _folders():
        shutil.rmtree(folder, ignore_errors=True)
    return freed


def place() -> Path:
    """Where embeddings are kept."""
    return cache_dir() / "embeddings"


def limit() -> int:
    """The most bytes of all embeddings: KSCN_EMBEDDING_BYTES, or 20 GiB."""
    return max_bytes("KSCN_EMBEDDING_BYTES", MOST_BYTES)


def _make_room(more: int) -> None:
    """Remove the shards that were not used for longest, until so many bytes fit."""
    shards = {path: _size_and_use(path) for folder in _folders() for path in _shards(folder)}
    over = sum(size for size, _ in shards.values()) + more - limit()
    for path, (size, _) in sorted(shards.items(), key=lambda shard: shard[1][1]):
        if over <= 0:
            return
        path.unlink(missing_ok=True)
        over -= size


def _folders() -> list[Path]:
    return [path for path in place().glob("*") if path.is_dir()]


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _size_and_use(path: Path) -> tuple[int, float]:
    """Bytes of a shard and when it was last used; nothing where another process removed it."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0.0
    return found.st_size, found.st_mtime
