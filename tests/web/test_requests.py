"""How much a client may ask for."""

import asyncio

import pytest

pytest.importorskip("fastapi")

from fastapi import Request

from kscn.web import requests
from kscn.web.requests import RateLimit, RefusalError, read_body, same


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def passed(limit, client="a"):
    try:
        limit.check(client)
    except RefusalError as error:
        assert error.status == 429
        return False
    return True


def test_bursts_pass_and_the_average_holds():
    clock = Clock()
    limit = RateLimit(10, clock)
    assert sum(passed(limit) for _ in range(30)) == 10
    clock.now = 0.35
    assert sum(passed(limit) for _ in range(30)) == 3
    clock.now = 1000
    assert sum(passed(limit) for _ in range(30)) == 10


def test_clients_are_counted_apart_and_forgotten_in_time(monkeypatch):
    monkeypatch.setattr(requests, "_CLIENTS", 3)
    limit = RateLimit(1, Clock())
    assert passed(limit, "a") and not passed(limit, "a")
    assert passed(limit, "b") and passed(limit, "c")
    assert not passed(limit, "a")
    assert passed(limit, "d")  # the fourth: b, not seen for longest, is forgotten
    assert passed(limit, "b")


def test_slow_rates_and_none():
    clock = Clock()
    limit = RateLimit(0.5, clock)
    assert passed(limit) and not passed(limit)
    clock.now = 2
    assert passed(limit)
    assert all(passed(RateLimit(0, clock)) for _ in range(1000))


def request_of(pieces, delay=0.0):
    waiting = list(pieces)

    async def receive():
        await asyncio.sleep(delay)
        piece = waiting.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(waiting)}

    return Request({"type": "http", "headers": []}, receive)


def status(*args, **options):
    with pytest.raises(RefusalError) as refused:
        asyncio.run(read_body(request_of(*args, **options), 10))
    return refused.value.status


def test_bodies_are_read_to_their_end_or_refused(monkeypatch):
    assert asyncio.run(read_body(request_of([b"12345", b"67890"]), 10)) == b"1234567890"
    assert status([b"12345", b"678901"]) == 413
    assert status([b"123", None]) == 400
    monkeypatch.setattr(requests, "_BODY_SECONDS", 0.05)
    assert status([b"1", b"2"], delay=5) == 408


def test_no_more_than_a_bound_is_thrown_away(monkeypatch):
    monkeypatch.setattr(requests, "_THROWN_AWAY", 25)
    for pieces, left in (([b"12345"] * 9, 4), ([b"12345"] * 3, 0), ([b"1", None], 0)):
        waiting = list(pieces)

        async def receive(waiting=waiting):
            piece = waiting.pop(0)
            kind = "http.disconnect" if piece is None else "http.request"
            return {"type": kind, "body": piece, "more_body": bool(waiting)}

        asyncio.run(requests.throw_away(receive))
        assert len(waiting) == left


def test_secrets_are_compared_whole():
    assert same("abc", "abc")
    assert not any(same(given, "abc") for given in ("", "ab", "abcd", "abd", "äbc", "\udcff"))
