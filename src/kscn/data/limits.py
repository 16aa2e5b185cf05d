"""What a file may cost: refused before it is paid, in words that say how to raise the limit."""

from __future__ import annotations

import stat
from pathlib import Path

from kscn.errors import DataError
from kscn.modelfile import max_bytes

__all__ = [
    "MAX_DEFLATE_RATIO",
    "MAX_DIMENSIONS",
    "as_path",
    "check_bytes",
    "check_regular",
    "max_bytes",
]

# Deflate cannot shrink data further than this, so a larger claim about the unpacked size is false.
MAX_DEFLATE_RATIO = 1032
# The most axes that every supported numpy can handle.
MAX_DIMENSIONS = 32
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_bytes(what: str, size: int) -> None:
    """Refuse what would unpack to more memory than KSCN_MAX_BYTES allows."""
    limit = max_bytes()
    if size > limit:
        raise DataError(
            f"{what} unpacks to {size} bytes, above the limit of {limit}; if you trust it, set the "
            "environment variable KSCN_MAX_BYTES to a larger number."
        )


def as_path(path: str | Path) -> Path:
    """A path that was given, unless it is empty, which `Path` takes for the current folder."""
    if path == "":
        raise DataError("The path is empty; give a file or folder.")
    return Path(path).expanduser()


def check_regular(path: Path) -> None:
    """Refuse pipes, sockets and devices, which may never end or never even begin to be read."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise DataError(
            f"{path} is {_KINDS.get(kind, 'no file')}, not a regular file; save its content to a "
            "file and give that."
        )
