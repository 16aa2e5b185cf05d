"""Running an application on a port of this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from kscn.errors import InputError, reason
from kscn.web import connections

# Connections that may queue in the system until they are taken.
_QUEUE = 1024


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((host, port))
            made.listen(_QUEUE)
        except BaseException:
            made.close()
            raise
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen on {host}:{port} ({reason(error)}); choose another --host or --port."
        ) from None
    return made


def address(listening: socket.socket) -> str:
    """Where a browser on this machine finds a socket."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Says when it is ready, and does not wait for ever for its clients."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        asyncio.get_running_loop().set_exception_handler(connections.on_loop_error)
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(_QUEUE)  # `backlog` made it as short as what is accepted at once
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """What is done ten times per second."""
        now = asyncio.get_running_loop().time()
        connections.drop_overdue(self.server_state.connections, now)
        return await super().on_tick(counter)


def make(app: ASGIApp, ready: Callable[[], None]) -> uvicorn.Server:
    """A server of an application; `ready` is called once the first request can come."""
    config = uvicorn.Config(
        app,
        http=connections.Connection,
        ws="none",  # would take connections out of the count
        log_level="error",  # clients that send nonsense must not fill the log
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could give itself any address, and with it any rate
        backlog=connections.accepted_at_once(),
        timeout_keep_alive=int(connections.SECONDS["request"]),
        timeout_graceful_shutdown=5,
    )
    return _Server(config, ready)


def run(app: ASGIApp, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until interrupted; `ready` is called once the first can come."""
    try:
        make(app, ready).run([listening])
    except KeyboardInterrupt:  # the usual way to end it
        pass
    finally:
        listening.close()
