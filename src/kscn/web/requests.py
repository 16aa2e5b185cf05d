"""What clients may ask for, and how they are refused: a status and one sentence as JSON.

Bounded are the bytes of bodies, the time to send one, the requests per second, and the hosts that a
request may name. A web page elsewhere can point a name of its own at this machine (DNS rebinding)
and then read what is served here as if it were its own. Its requests name that host; it cannot make
them name an address.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kscn.errors import KscnError

# A body that takes longer than this to arrive is not waited for.
_BODY_SECONDS = 30.0
# Of a body that is refused, this much is read all the same, while it comes without pauses: whoever
# still sends when the connection is closed never sees the answer.
_THROWN_AWAY, _PAUSE = 64 * 2**20, 0.5
# Clients remembered by the rate limit; the one not seen for longest is forgotten first.
_CLIENTS = 10_000
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.IGNORECASE)


class RefusalError(KscnError):
    """A request that is not answered: the HTTP status that says why, a sentence, and headers."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers

    def response(self) -> JSONResponse:
        """The answer."""
        return JSONResponse({"error": str(self)}, self.status, self.headers)


def install_refusals(app: FastAPI) -> None:
    """Make every fault of a request one sentence."""

    async def respond(_: Request, error: Exception) -> JSONResponse:
        if isinstance(error, RequestValidationError):
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            error = RefusalError(422, f"{where} cannot be used: {first['msg']}.")
        elif isinstance(error, HTTPException):
            error = RefusalError(error.status_code, f"{error.detail}.", error.headers)
        elif not isinstance(error, KscnError):
            error = RefusalError(500, "Internal Server Error: this is a fault in kscn.")
        elif not isinstance(error, RefusalError):
            error = RefusalError(422, str(error))
        return error.response()

    for kind in (KscnError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, respond)


class Guard:
    """Middleware around an application: refuses requests, answers them itself, or lets them in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def check(self, request: Request) -> Response | None:
        """Raise `RefusalError`, give an answer, or None to let the request in."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request."""
        answer = None
        if scope["type"] == "http":
            try:
                answer = self.check(Request(scope))
            except RefusalError as refusal:
                await throw_away(receive)
                answer = refusal.response()
        await (answer or self._app)(scope, receive, send)


def same(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def named_host(request: Request) -> str:
    """The host that a request names, without its port, in lower case."""
    found = _HOST.fullmatch(request.headers.get("host", ""))
    if found is None or (found[1] and not is_address(found[1])):
        raise RefusalError(
            400, "the header Host names no host; send the address that is asked, with its port."
        )
    return (found[1] or found[2]).lower()


def is_address(host: str) -> bool:
    """Whether a host is given by number."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def busy() -> RefusalError:
    """What is said when others have to be answered first."""
    return RefusalError(
        503, "too many requests are waiting; try again later.", {"Retry-After": "1"}
    )


class Room:
    """Bytes that the bodies of all requests may take together, at most `most`."""

    def __init__(self, most: int) -> None:
        self._left = most

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """A function to take bytes with, which are given back at the end."""
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if size > self._left:
                raise busy()
            self._left -= size
            taken += size

        try:
            yield take
        finally:
            self._left += taken


async def read_body(
    request: Request, most: int, take: Callable[[int], None] = lambda size: None
) -> bytes:
    """The body of a request of at most `most` bytes; a longer one is refused, and not kept.

    `take` is called with the size of every piece, and may refuse it.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > most):
        await throw_away(request.receive)
        raise _too_large(most)
    try:
        return await asyncio.wait_for(_collect(request.receive, most, take), _BODY_SECONDS)
    except TimeoutError:
        raise RefusalError(
            408, f"the body did not arrive within {_BODY_SECONDS:.0f} seconds; send it faster."
        ) from None


async def _collect(receive: Receive, most: int, take: Callable[[int], None]) -> bytes:
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusalError(400, "the connection ended before the body did; send it again.")
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > most:
            if more:
                await throw_away(receive)
            raise _too_large(most)
        take(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


async def throw_away(receive: Receive) -> None:
    """Read a body that is refused, as far as it comes at once, and keep nothing of it."""
    size, more = 0, True
    while more and size < _THROWN_AWAY:
        try:
            message = await asyncio.wait_for(receive(), _PAUSE)
        except TimeoutError:
            return
        size += len(message.get("body") or b"")
        more = message["type"] == "http.request" and message.get("more_body", False)


def _too_large(most: int) -> RefusalError:
    return RefusalError(413, f"the body is larger than {most:,} bytes; send less at a time.")


class RateLimit:
    """At most `rate` requests per second of each client on average, with bursts of a second's.

    A bucket per client fills at that rate and every request takes one from it. 0 is no limit;
    `clock` gives seconds, ascending.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Count a request, or refuse it."""
        if not self._rate:
            return
        now = self._clock()
        left, when = self._buckets.pop(client, (self._most, now))
        left = min(self._most, left + (now - when) * self._rate)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = (1 - left) / self._rate
            raise RefusalError(
                429,
                f"more than {self._rate:g} requests per second; wait {wait:.2f} s, and send more "
                "samples in each request.",
                {"Retry-After": str(max(1, round(wait)))},
            )
