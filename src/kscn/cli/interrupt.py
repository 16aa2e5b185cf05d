"""Ctrl-C and SIGTERM: stop at the next safe point, say how to go on, leave with 130 or 143."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Seconds that a safe point is waited for. Slurm and torchrun kill after 30.
GRACE = 20.0
# Seconds after which an import that Ctrl-C waits for is looked at again.
_LOOK = 0.05


class Interruption:
    """Which signal came, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def code(self) -> int:
        """The exit code of a process that a signal ended."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def interruptible(can_stop: bool) -> Iterator[Interruption]:
    """While the context is open, the first signal asks the fit to stop and the second ends it.

    Ending it raises KeyboardInterrupt. That also happens where no safe point comes for a while, and
    at once if the fit has none.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():  # signals are the main one's
        yield interruption
        return
    from kscn.runtime.checkpoint import STOP

    def stop(number: int, frame: FrameType | None) -> None:
        if interruption.signal is not None or not can_stop:
            interruption.signal = interruption.signal or number
            raise KeyboardInterrupt
        interruption.signal = number
        STOP.make()
        signal.setitimer(signal.ITIMER_REAL, GRACE)

    def give_up(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handlers: dict[int, Any] = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGALRM: give_up}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield interruption
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        STOP.withdraw()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def imports_finish() -> Iterator[None]:
    """While the context is open, Ctrl-C during an import ends the command when that is through.

    Packages catch whatever goes wrong while they try to import others: there KeyboardInterrupt
    would be passed over, or come back as an error that is none. A second Ctrl-C waits no longer.
    """
    came = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal came
        first, came = not came, True
        if (first or number == signal.SIGALRM) and _is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, _LOOK)
        else:
            raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # signals are the main thread's, and somebody may have other plans with this one
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGALRM)}
    try:
        yield
    except Exception as error:
        if came:  # after a second Ctrl-C: whatever it made of the import
            raise KeyboardInterrupt from error
        raise
    finally:
        if came:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
