"""Ctrl-C and SIGTERM: stop at the next safe point, say how to go on, leave with 130 or 143."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Seconds that a safe point is waited for. Slurm and torchrun kill after 30.
GRACE = 20.0


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
    """While the context is open, the first signal asks the fit to stop and the second ends it.

    Ending it raises KeyboardInterrupt. That also happens where no safe point comes for a while.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():  # signals are the main one's
        yield interruption
        return
    from kscn.runtime.checkpoint import STOP

    def stop(number: int, frame: FrameType | None) -> None:
        if interruption.signal is not None:
            raise KeyboardInterrupt
        interruption.signal = number
        STOP.make()
        signal.setitimer(signal.ITIMER_REAL, GRACE)

    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before: dict[int, Any] = {number: signal.signal(number, stop) for number in handled}
    try:
        yield interruption
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        STOP.withdraw()
        for number, handler in before.items():
            signal.signal(number, handler)
