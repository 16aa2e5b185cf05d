"""A real server and hostile clients: nobody gets in, and others are answered meanwhile."""

import json
import resource
import socket
import threading
from http.client import HTTPConnection

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from kscn.web import server
from kscn.web.predicting import Predictor
from kscn.web.serving import prediction_app

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
MOST, AT_ONCE = 100_000, 12


@pytest.fixture
def connect(model):
    """connect(content) -> a new connection to a service in a thread, with that sent on it."""
    app = prediction_app(Predictor(model, (8, 8)), most_bytes=MOST, seconds=1.0)
    listening, made, opened = server.bind("127.0.0.1", 0), server.make(app, AT_ONCE), []
    thread = threading.Thread(target=made.run, args=([listening],))
    thread.start()

    def new(content=b""):
        client = socket.create_connection(listening.getsockname(), timeout=20)
        opened.append(client)
        client.sendall(content)
        return client

    yield new
    for client in opened:
        client.close()
    made.should_exit = True
    thread.join(30)
    listening.close()


def post(*headers, body=b"", host=b"127.0.0.1"):
    lines = [b"POST /predict HTTP/1.1", b"Host: " + host, b"Content-Type: application/octet-stream"]
    return b"\r\n".join([*lines, *headers, b"", body])


def status(client):
    return int(client.recv(4096).split()[1])


def answered(connect):
    """Whether somebody else is answered now."""
    client = connect(HEALTH)
    try:
        return status(client) == 200
    finally:
        client.close()


CHUNKED = b"Transfer-Encoding: chunked"


def test_a_body_without_end_is_cut_at_its_bound(connect):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    client = connect(post(CHUNKED))
    piece, sent = b"10000\r\n" + b"x" * 2**16 + b"\r\n", 0
    client.settimeout(0.2)
    try:
        while sent < 2**28:
            sent += client.send(piece)
    except (TimeoutError, ConnectionError):
        pass  # the server reads no more of it, or closed the connection
    assert answered(connect)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (post(b"Content-Length: 9000000000", body=b"x"), 413),
        (post(b"Content-Length: 9000000", body=b"x" * 9_000_000), 413),
        (post(CHUNKED, body=b"fffff\r\n" + b"x" * 0xFFFFF), 413),
        (post(b"Content-Length: 3", body=b"much more than three bytes"), 400),
        (post(b"Content-Length: 100", body=b"held back"), 408),
        (post(b"Content-Length: -1"), 400),
        (post(CHUNKED, body=b"not a chunk\r\n"), 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 2**20, 400),
        (HEALTH.replace(b"127.0.0.1", b"rebound.example"), 400),
        (HEALTH.replace(b"127.0.0.1", b"127.0.0.1@rebound.example"), 400),
    ],
    ids=range(12),
)
def test_what_cannot_be_answered_is_refused(connect, content, expected):
    try:
        assert status(connect(content)) == expected
    except ConnectionError:  # closed while we still sent
        assert len(content) > MOST
    assert answered(connect)


def test_slow_clients_keep_nobody_waiting(connect):
    body = np.lib.format.magic(1, 0)
    slow = [connect(post(b"Content-Length: 1000", body=body)) for _ in range(AT_ONCE // 3)]
    silent = [connect() for _ in range(AT_ONCE // 3)]
    assert answered(connect)
    assert [status(client) for client in slow] == [408] * len(slow)  # and they are let go
    assert len(silent) == AT_ONCE // 3 and answered(connect)


def test_more_clients_than_are_served_are_told_so(connect):
    slow = [connect(post(b"Content-Length: 1000")) for _ in range(AT_ONCE)]
    assert status(connect(HEALTH)) == 503
    for client in slow:
        assert status(client) in (408, 503)
        client.close()
    assert answered(connect)


def test_a_client_keeps_its_connection(connect, images, model):
    connection = HTTPConnection(*connect().getpeername(), timeout=20)
    for image in images[:5]:
        body, kind = json.dumps(image.tolist()), {"Content-Type": "application/json"}
        connection.request("POST", "/predict", body, kind)
        answer = json.loads(connection.getresponse().read())
        assert answer["predictions"][0]["label"] == model.predict(image[None])[0]
