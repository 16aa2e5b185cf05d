"""Connections of clients: how many are open, and how long one may keep the server waiting.

Every connection takes one of the files that a process may have open. A client that opens many and
sends nothing, or sends and reads byte by byte, would have them all. So their number is bounded,
the one that was waited for longest makes room for a new one, and none is waited for for ever.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import time
from collections.abc import Iterable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds that a client may take for the next request with its head, for the body (a little more
# than `read_body` waits, which answers), and to read on in an answer.
SECONDS = {"request": 15.0, "body": 35.0, "answer": 30.0}
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger(__name__)


def most() -> int:
    """Connections open at a time: at most half of the files that this process may open."""
    return min(512, _files() // 2)


def accepted_at_once() -> int:
    """Connections taken from the queue before the first of them is looked at."""
    return min(64, _files() // 16)


def _files() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 10**6 if limit == resource.RLIM_INFINITY else limit


class Connection(H11Protocol):
    """A connection that knows what the server waits for, and since when.

    Attributes
    ----------
    awaited : str or None
        What the client is to do: a key of `SECONDS`; None while its request is answered.
    since : float
        When that began, by the clock of the loop.
    """

    awaited: str | None = None
    since = 0.0
    _unread = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, in place of the one that was waited for longest if there are too many."""
        super().connection_made(transport)
        self._look()
        if len(self.connections) > most():
            warn("too many connections at a time; those that idle longest are closed.")
            waited = [one for one in _own(self.connections) if one.awaited is not None]
            longest = min(waited, key=lambda one: one.since)  # this one if all others are answered
            self.connections.discard(longest)  # it is gone soon; the next must find another
            longest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # nonsense after the answer, which cannot be answered again
            self.transport.abort()
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread = True
        self._look()

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        self._unread = False
        self._look()

    def _look(self) -> None:
        before = self.awaited
        if self.cycle is None or self.cycle.response_complete:
            self.awaited = "request"
        elif self._unread:
            self.awaited = "answer"
        else:
            self.awaited = "body" if self.cycle.more_body else None
        if self.awaited != before:  # single bytes do not count as progress
            self.since = self.loop.time()


def drop_overdue(connections: Iterable[Any], now: float) -> None:
    """Close connections whose client keeps the server waiting for too long."""
    for one in _own(connections):
        if one.awaited is not None and now - one.since > SECONDS[one.awaited]:
            one.transport.abort()  # `close` would wait for a client that does not read


def _own(connections: Iterable[Any]) -> list[Connection]:
    return [one for one in connections if isinstance(one, Connection)]


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say in one sentence that files have run out; asyncio writes thousands of tracebacks."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _OUT_OF_FILES:
        warn(
            f"no more connections can be opened ({error.strerror}); raise the limit (ulimit -n), "
            "or find out who opens so many."
        )
    else:
        loop.default_exception_handler(context)


_said: dict[str, float] = {}


def warn(sentence: str, every: float = 600.0) -> None:
    """Log a sentence unless it was logged within the last `every` seconds."""
    now = time.monotonic()
    if now >= _said.get(sentence, -every) + every:
        _said[sentence] = now
        _log.warning("kscn: warning: %s", sentence)
