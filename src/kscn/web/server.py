"""A server on a port of this machine."""

import socket

import uvicorn
from starlette.types import ASGIApp

from kscn.errors import InputError, reason

# Connections that may queue in the system until they are taken.
_QUEUE = 1024


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_QUEUE)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen on {host}:{port} ({reason(error)}); choose another --host or --port."
        ) from None


def address(listening: socket.socket) -> str:
    """Where a browser on this machine finds a socket."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make(app: ASGIApp, most_at_once: int = 64) -> uvicorn.Server:
    """A server of an application that answers 503 to more than so many connections at a time.

    Each of them may hold a body in memory, so their number bounds that too.
    """
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_level="error",  # clients that send nonsense must not fill the log
            access_log=False,
            server_header=False,
            backlog=_QUEUE,
            limit_concurrency=most_at_once,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=5,
        )
    )


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Answer the requests that come to a socket, until Ctrl-C."""
    try:
        make(app).run([listening])
    except KeyboardInterrupt:  # the usual way to end it
        pass
    finally:
        listening.close()
