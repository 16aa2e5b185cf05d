"""Files and directories that appear under their name when they are complete, or not at all."""

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kscn.errors import InputError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes its final name only once it is complete and flushed to disk.

    Links are followed, and their target is replaced. Stdout, called -, gets all in the end. A place
    that cannot be written is reported on entry, before any work is done for the file.
    """
    path = Path(path)
    if is_stdout(path):
        with tempfile.TemporaryFile() as whole, os.fdopen(os.dup(1), "wb") as stdout:
            yield whole
            whole.seek(0)
            shutil.copyfileobj(whole, stdout)
        return
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path} is a directory or no regular file; give the name of a file to write, or - for "
            "stdout."
        )
    final = Path(os.path.realpath(path))
    part = final.with_name(f".{final.name}.part-{os.getpid()}")
    try:
        file = part.open("wb")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose a place that exists and can be written."
        ) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, final)
    except OSError as error:
        if error.errno in _NO_ROOM and error.filename is None:  # a write, which knows no name
            raise InputError(f"cannot write {path}: {error.strerror}; make room for it.") from error
        raise
    finally:
        part.unlink(missing_ok=True)


def is_stdout(path: Path) -> bool:
    """Whether a path stands for stdout."""
    return str(path) in ("-", "/dev/stdout")


def replace_directory(new: Path, final: Path) -> None:
    """Put the finished directory `new` at `final`; what was there survives until it is in place.

    Both are on one file system, and `final` is no link.
    """
    old = hidden_sibling(final, "old")
    if final.exists():
        os.rename(final, old)
    try:
        os.rename(new, final)
    except OSError:
        if old.exists():
            os.rename(old, final)
        raise
    sync_directory(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Delete a directory that never has its name while only a part of it is left."""
    old = hidden_sibling(path, "old")
    with suppress(OSError):
        os.rename(path, old)
    shutil.rmtree(old, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to disk, so that a rename survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hidden_sibling(path: Path, role: str) -> Path:
    """A name beside `path` that nobody has."""
    return path.absolute().parent / f".{path.name}.{role}-{uuid.uuid4().hex[:8]}"
