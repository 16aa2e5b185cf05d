"""Ctrl-C and SIGTERM end a fit: say how to go on, leave with 130 or 143."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kscn.cli.terminal import complain


@contextmanager
def interruptible(advice: Callable[[], str] | None = None) -> Iterator[None]:
    """While the context is open, both signals end what is going on.

    The state of the last epoch is on disk by then. The process says the `advice`, if there is any,
    and leaves.
    """
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()  # signals are of that one
    handled = (signal.SIGINT, signal.SIGTERM) if main else ()
    before: dict[int, Any] = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    except KeyboardInterrupt:
        if advice is not None:
            complain(f"interrupted; {advice()}")
        raise SystemExit(128 + (came or [signal.SIGINT])[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
