"""What a file may be and cost: refused before it is paid, in words that say what to do."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kscn.errors import DataError, KscnError, reason
from kscn.modelfile import max_bytes as max_bytes  # for those who check sizes of their own


def check_regular(path: Path) -> None:
    """Refuse pipes, sockets and devices, which may never end or never even begin to be read."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(
            f"{path} is not a regular file but a folder, pipe, socket or device; save its content "
            "to a file and give that."
        )


def check_bytes(what: str, size: int) -> None:
    """Refuse what would unpack to more memory than KSCN_MAX_BYTES allows."""
    limit = max_bytes()
    if size > limit:
        raise DataError(
            f"{what} unpacks to {size} bytes, above the limit of {limit}; if you trust it, set the "
            "environment variable KSCN_MAX_BYTES to a larger number."
        )


@contextmanager
def readable(path: Path | str, kind: str, advice: str = "write it again") -> Iterator[None]:
    """Name the file that cannot be read; libraries pass its faults on as any kind of error."""
    try:
        yield
    except KscnError:
        raise
    except Exception as error:
        why = reason(error).split(" <_io.")[0]  # a stream, while the name of its file is said here
        raise DataError(f"{path} is not a readable {kind} ({why}); {advice}.") from error
