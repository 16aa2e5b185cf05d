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
from collections.abc import Sequence
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

MOST_BYTES = 20 * 2**30
DESCRIPTION = "encoder.json"
_SUFFIX = ".safetensors"
_DIGEST = 32  # bytes of a sha256


@dataclass(frozen=True)
class Entry:
    """The embeddings of one encoder: what it is called, how many there are, and their bytes."""

    name: str
    sha256: str
    images: int
    bytes: int


class Cache:
    """The embeddings that one encoder made.

    Parameters
    ----------
    about : dict
        What makes an encoder the same as another, as plain values; `name` tells people.
    dim : int
        Numbers in an embedding.
    """

    def __init__(self, about: dict[str, Any], dim: int) -> None:
        self._about = about
        self._dim = dim
        same = {key: value for key, value in about.items() if key != "name"}
        digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
        self._folder = _root() / digest[:32]
        self._usable = True

    def read(self, digests: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """The embeddings that are known, by the digests of their images."""
        wanted = set(digests)
        found: dict[bytes, NDArray[np.float16]] = {}
        for path in _shards(self._folder):
            with suppress(OSError, SafetensorError, ValueError, KeyError):
                with safe_open(path, framework="numpy") as shard:
                    keys = [key.tobytes() for key in _checked(shard.get_tensor("keys"), _DIGEST)]
                    here = [row for row, key in enumerate(keys) if key in wanted]
                    if not here:
                        continue
                    vectors = shard.get_tensor("embeddings")
                if vectors.shape != (len(keys), self._dim) or vectors.dtype != np.float16:
                    continue  # a damaged shard: its images are computed again
                found |= {
                    keys[row]: vectors[row] for row in here if np.isfinite(vectors[row]).all()
                }
                os.utime(path)  # used last
        return found

    def write(self, digests: Sequence[bytes], vectors: NDArray[np.float16]) -> None:
        """Put embeddings (m, d) in, as one shard; a disk that is full costs the cache only."""
        if not self._usable or not digests:
            return
        keys = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), _DIGEST)
        name = hashlib.sha256(keys.tobytes()).hexdigest()[:32]
        content = save({"keys": keys, "embeddings": np.ascontiguousarray(vectors)})
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not (self._folder / DESCRIPTION).exists():
                with atomic_file(self._folder / DESCRIPTION) as file:
                    file.write(json.dumps(self._about).encode())
            _make_room(len(content))
            with atomic_file(self._folder / f"{name}{_SUFFIX}") as file:
                file.write(content)
        except (OSError, InputError) as error:
            self._usable = False
            warnings.warn(
                f"embeddings are not kept: {error} Set KSCN_CACHE to a directory with room.",
                stacklevel=2,
            )


def entries() -> list[Entry]:
    """What the cache holds, the largest first."""
    found = []
    for folder in _folders():
        shards = list(_shards(folder))
        images = 0
        for path in shards:
            with suppress(OSError, SafetensorError, KeyError), safe_open(path, "numpy") as shard:
                images += shard.get_slice("keys").get_shape()[0]
        name, sha256 = "?", "?"
        with suppress(OSError, ValueError, KeyError, TypeError):
            about = json.loads((folder / DESCRIPTION).read_bytes()[: 2**16])
            name, sha256 = str(about["name"]), str(about["sha256"])
        found.append(Entry(name, sha256, images, sum(_size(path) for path in shards)))
    return sorted(found, key=lambda entry: -entry.bytes)


def clear() -> int:
    """Remove all embeddings; how many bytes that gave back."""
    freed = sum(entry.bytes for entry in entries())
    for folder in _folders():
        shutil.rmtree(folder, ignore_errors=True)
    return freed


def place() -> Path:
    """Where embeddings are kept."""
    return _root()


def limit() -> int:
    """The most bytes of all embeddings: KSCN_EMBEDDING_BYTES, or 20 GiB."""
    return max_bytes("KSCN_EMBEDDING_BYTES", MOST_BYTES)


def _make_room(more: int) -> None:
    """Remove the shards that were not used for longest, until so many bytes fit."""
    shards = [path for folder in _folders() for path in _shards(folder)]
    sizes = {path: _size(path) for path in shards}
    over = sum(sizes.values()) + more - limit()
    if over <= 0:
        return
    for path in sorted(shards, key=_used):
        path.unlink(missing_ok=True)
        over -= sizes[path]
        if over <= 0:
            return


def _root() -> Path:
    return cache_dir() / "embeddings"


def _folders() -> list[Path]:
    root = _root()
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # another process removed it
        return 0


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _checked(keys: NDArray, width: int) -> NDArray:
    if keys.ndim != 2 or keys.shape[1] != width or keys.dtype != np.uint8:
        raise ValueError("no digests")
    return keys
