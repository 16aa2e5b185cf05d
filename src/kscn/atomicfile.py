"""Files and directories that appear under their name when they are complete, or not at all."""

import errno
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kscn.errors import InputError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MOST_LINKS = 40  # in a row, as the kernel has it


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes its final name only once it is complete and flushed to disk.

    Links are followed, and their target is replaced. What is no regular file (a terminal, a pipe,
    /dev/stdout) stays what it is and gets the content when that is complete. A place that cannot be
    written is reported on entry, before any work is done for the file.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a directory; give the name of a file to write.")
    final = Path(os.path.realpath(path))
    part = final.with_name(f".{final.name}.part-{os.getpid()}")
    try:
        if final.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        node = _opened_node(path)
        file = part.open("wb") if node is None else None
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose a place that exists and can be written."
        ) from error
    try:
        if file is not None:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, final)
        elif node is not None:
            with node, tempfile.TemporaryFile() as content:
                yield content
                content.seek(0)
                shutil.copyfileobj(content, node)
    except OSError as error:
        if error.errno in _NO_ROOM and error.filename is None:  # a write, which knows no name
            raise InputError(f"cannot write {path}: {error.strerror}; make room for it.") from error
        raise
    finally:
        if file is not None:
            part.unlink(missing_ok=True)


def _opened_node(path: Path) -> BinaryIO | None:
    """The terminal, pipe or device of that name, to be written through; None for other names."""
    descriptor = _descriptor(path)
    if descriptor is not None:
        # Its own place in the file, so that what is there or comes later is not written over.
        return os.fdopen(os.dup(descriptor), "wb")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        return path.open("wb")
    return None


def _descriptor(path: Path) -> int | None:
    """The number of the open file for which a name like /dev/stdout or /dev/fd/3 stands."""
    descriptors = os.path.realpath("/dev/fd")
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and os.path.realpath(path.parent) == descriptors:
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def replace_directory(new: Path, final: Path) -> None:
    """Put the finished directory `new` at `final`; what was there survives until it is in place.

    Both are on one file system. A link at `final` is replaced itself, and its target is kept.
    """
    old = hidden_sibling(final, "old")
    if os.path.lexists(final):
        os.rename(final, old)
    try:
        os.rename(new, final)
    except OSError:
        if os.path.lexists(old):
            os.rename(old, final)
        raise
    sync_directory(final.parent)
    if old.is_symlink():
        old.unlink()
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
