"""Ctrl-C and SIGTERM end a fit; its last state is on disk, and what comes next is said."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interruption:
    """Which signal came, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def code(self) -> int:
        """The exit code of a process that a signal ended."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """While the context is open, both signals raise KeyboardInterrupt."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():  # signals are the main one's
        yield interruption
        return

    def stop(number: int, frame: FrameType | None) -> None:
        interruption.signal = number
        raise KeyboardInterrupt

    handled = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {number: signal.signal(number, stop) for number in handled}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
