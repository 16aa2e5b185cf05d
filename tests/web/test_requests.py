"""A body is read to its end, or refused at its bound of bytes or seconds."""

import asyncio

import pytest

pytest.importorskip("fastapi")

from fastapi import Request

from kscn.web.requests import RefusalError, read_body


def request_of(pieces, delay=0.0, headers=()):
    """A request whose body comes in pieces; None stands for a client that goes away."""
    waiting = list(pieces)

    async def receive():
        await asyncio.sleep(delay)
        piece = waiting.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(waiting)}

    return Request({"type": "http", "headers": headers}, receive), waiting


@pytest.mark.parametrize(
    ("pieces", "options", "status", "left"),
    [
        ([b"12345", b"67890"], {}, None, 0),
        ([b"12345", b"678901", b"2"], {}, 413, 1),  # nothing is read beyond the bound
        ([b"123", None], {}, 400, 0),
        ([b"1", b"2"], {"delay": 5}, 408, 2),
        ([b"12"], {"headers": [(b"content-length", b"11")]}, 413, 1),
        ([b"12"], {"headers": [(b"content-length", b"9" * 5000)]}, 413, 1),
        ([b"12"], {"headers": [(b"content-length", b"1")]}, None, 0),  # a server would see to it
    ],
)
def test_bodies_are_read_to_their_end_or_refused(pieces, options, status, left):
    request, waiting = request_of(pieces, **options)
    reading = read_body(request, 10, 0.1)
    if status is None:
        assert asyncio.run(reading) == b"".join(pieces)
    else:
        with pytest.raises(RefusalError) as refused:
            asyncio.run(reading)
        assert refused.value.status == status
    assert len(waiting) == left
