"""How much clients may ask for: bytes of bodies, time to send one, requests per second."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from kscn.web.refusals import RefusalError

# A body that takes longer than this to arrive is not waited for.
_BODY_SECONDS = 30.0
# Of a body that is refused, this much is read all the same, while it comes without pauses: whoever
# still sends when the connection is closed never sees the answer.
_THROWN_AWAY, _PAUSE = 64 * 2**20, 0.5
# Clients remembered by the rate limit; the one not seen for longest is forgotten first.
_CLIENTS = 10_000


def same(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


class Room:
    """Bytes that the bodies of all requests may take together.

    Parameters
    ----------
    most : int
        That many.
    """

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


def busy() -> RefusalError:
    """What is said when others have to be answered first."""
    return RefusalError(
        503, "too many requests are waiting; try again later.", {"Retry-After": "1"}
    )


async def read_body(
    request: Request, most: int, take: Callable[[int], None] = lambda size: None
) -> bytes:
    """The body of a request of at most `most` bytes; a longer one is refused, and not kept.

    `take` is called with the size of every piece, and may refuse it.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and len(declared) < 20 and int(declared) > most:
        await throw_away(request.receive)
        raise _too_large(most)
    try:
        return await asyncio.wait_for(_collect(request, most, take), _BODY_SECONDS)
    except asyncio.TimeoutError:
        raise RefusalError(
            408, f"the body did not arrive within {_BODY_SECONDS:.0f} seconds; send it faster."
        ) from None
    except ClientDisconnect:
        raise RefusalError(400, "the connection ended before the body did; send it again.") from (
            None
        )


async def _collect(request: Request, most: int, take: Callable[[int], None]) -> bytes:
    pieces, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > most:
            if more:
                await throw_away(request.receive)
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
        except asyncio.TimeoutError:
            return
        size += len(message.get("body") or b"")
        more = message["type"] == "http.request" and message.get("more_body", False)


def _too_large(most: int) -> RefusalError:
    return RefusalError(413, f"the body is larger than {most:,} bytes; send less at a time.")


class RateLimit:
    """At most `rate` requests per second of each client on average, with bursts of a second's.

    A bucket per client fills at that rate and every request takes one from it.

    Parameters
    ----------
    rate : float
        Requests per second; 0 for no limit.
    clock : callable
        Seconds, ascending.
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
