"""Ctrl-C and SIGTERM end a fit: say how to go on, leave with 130 or 143."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kscn.cli.terminal import complain


@contextmanager
def interruptible(advice: Callable[[], str] | None = None) -> Iterator[None]:
    """While the context is open, both signals end what is going on.

    The state of the last epoch is on disk by then. The process says the `advice`, if there is any,
    and leaves.
    """
    came = signal.SIGINT

    def stop(number: int, _frame: object) -> None:
        nonlocal came
        came = signal.Signals(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        if advice is not None:
            complain(f"interrupted; {advice()}")
        raise SystemExit(128 + came) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
