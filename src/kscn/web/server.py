"""Running an application on a port of this machine, until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from kscn.errors import InputError


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((host, port))
            made.listen(1024)
        except BaseException:
            made.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host}:{port} ({reason}); choose another --host or --port."
        ) from None
    return made


def address(listening: socket.socket) -> str:
    """Where a browser on this machine finds a socket."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._ready()


def run(app: ASGIApp, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until interrupted; `ready` is called once the first can come."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could give itself any address, and with it any rate
        timeout_keep_alive=15,
        timeout_graceful_shutdown=5,
    )
    try:
        _Server(config, ready).run([listening])
    except KeyboardInterrupt:  # the usual way to end it
        pass
    finally:
        listening.close()
