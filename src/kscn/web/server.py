"""A server on a port of this machine, whose clients cannot keep it waiting for ever.

Every connection takes one of the files that a process may have open. A client that opens many and
sends nothing, or sends and reads byte by byte, would have them all. So their number is bounded,
the one that was waited for longest makes room for a new one, and none is waited for for ever.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from kscn.errors import InputError, reason

# Connections that may queue in the system until they are taken.
_QUEUE = 1024
# Seconds that a client may take for the next request with its head, for the body (a little more
# than `read_body` waits, which answers), and to read on in an answer.
SECONDS = {"request": 15.0, "body": 35.0, "answer": 30.0}
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_EVERY = 600.0  # seconds after which a warning is said again
_log = logging.getLogger(__name__)
_said: dict[str, float] = {}


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    made = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_QUEUE)
        return made
    except (OSError, OverflowError) as error:
        if made is not None:
            made.close()
        raise InputError(
            f"cannot listen on {host}:{port} ({reason(error)}); choose another --host or --port."
        ) from None


def address(listening: socket.socket) -> str:
    """Where a browser on this machine finds a socket."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: ASGIApp, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until Ctrl-C; `ready` is called once the first can come."""
    try:
        make(app, ready).run([listening])
    except KeyboardInterrupt:  # the usual way to end it
        pass
    finally:
        listening.close()


def make(app: ASGIApp, ready: Callable[[], None]) -> uvicorn.Server:
    """A server of an application; `ready` is called once the first request can come."""
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",  # would take connections out of the count
        log_level="error",  # clients that send nonsense must not fill the log
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could give itself any address, and with it any rate
        backlog=accepted_at_once(),
        timeout_keep_alive=int(SECONDS["request"]),
        timeout_graceful_shutdown=5,
    )
    return _Server(config, ready)


def most_connections() -> int:
    """Connections open at a time: at most half of the files that this process may open."""
    return min(512, _files() // 2)


def accepted_at_once() -> int:
    """Connections taken from the queue before the first of them is looked at."""
    return min(64, _files() // 16)


def _files() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 10**6 if limit == resource.RLIM_INFINITY else limit


class _Server(uvicorn.Server):
    """Says when it is ready, and closes connections whose client takes too long."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        asyncio.get_running_loop().set_exception_handler(_on_loop_error)
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(_QUEUE)  # `backlog` made it as short as what is accepted at once
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """What is done ten times per second."""
        for one in list(self.server_state.connections):
            assert isinstance(one, _Connection)
            awaited, since = one.look()
            if awaited is not None and one.loop.time() - since > SECONDS[awaited]:
                one.transport.abort()  # `close` would wait for a client that does not read
        return await super().on_tick(counter)


class _Connection(H11Protocol):
    """A connection that knows what the server waits for, and since when."""

    _state: tuple[Any, str | None] | None = None
    _since = 0.0

    def look(self) -> tuple[str | None, float]:
        """What the client is to do, a key of `SECONDS`, and since when by the clock of the loop.

        That is None while its request is answered.
        """
        if self.cycle is None or self.cycle.response_complete:
            awaited: str | None = "request"
        elif self.flow.write_paused:
            awaited = "answer"
        else:
            awaited = "body" if self.cycle.more_body else None
        # Another request or another thing to wait for: single bytes do not count as progress.
        if self._state != (self.cycle, awaited):
            self._state, self._since = (self.cycle, awaited), self.loop.time()
        return awaited, self._since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, in place of the one that was waited for longest if there are too many."""
        super().connection_made(transport)
        self.look()
        if len(self.connections) > most_connections():
            _warn("too many connections at a time; those that idle longest are closed.")
            own: set[Any] = self.connections
            waited = [one for one in own if one.look()[0] is not None]
            longest = min(waited, key=lambda one: one.look()[1])  # this one if none else is
            self.connections.discard(longest)  # it is gone soon; the next must find another
            longest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # nonsense after the answer, which cannot be answered again
            self.transport.abort()


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say in one sentence that files have run out; asyncio writes thousands of tracebacks."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _OUT_OF_FILES:
        _warn(
            f"no more connections can be opened ({error.strerror}); raise the limit (ulimit -n), "
            "or find out who opens so many."
        )
    else:
        loop.default_exception_handler(context)


def _warn(sentence: str) -> None:
    """Log a sentence unless that was done a short time ago."""
    now = time.monotonic()
    if now >= _said.get(sentence, -_EVERY) + _EVERY:
        _said[sentence] = now
        _log.warning("kscn: warning: %s", sentence)
