"""Ctrl-C and SIGTERM: stop at the next safe point, say how to go on, leave with 130 or 143."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kscn.cli.terminal import complain

# Seconds that a safe point is waited for. Slurm and torchrun kill after 30.
GRACE = 20.0


@contextmanager
def interruptible(advice: Callable[[], str] | None = None) -> Iterator[None]:
    """While the context is open, the first signal asks the fit to stop and the second ends it.

    It is also ended where no safe point comes for a while. Then the process says the `advice`, if
    there is any, and leaves.
    """
    from kscn.runtime.checkpoint import STOP, StoppedError

    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        STOP.make()
        signal.setitimer(signal.ITIMER_REAL, GRACE)

    main = threading.current_thread() is threading.main_thread()  # signals are of that one
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM) if main else ()
    before: dict[int, Any] = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    except (KeyboardInterrupt, StoppedError):
        if advice is not None:
            complain(f"interrupted; {advice()}")
        raise SystemExit(128 + (came or [signal.SIGINT])[0]) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        STOP.withdraw()
        for number, handler in before.items():
            signal.signal(number, handler)
