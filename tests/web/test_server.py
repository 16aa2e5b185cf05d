"""Connections of a real server: bounded in number and in time, whatever clients do with them."""

import resource
import socket
import threading
import time

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from fastapi import FastAPI, Request, Response

from kscn.web import server
from kscn.web.requests import install_refusals, read_body

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def small_app():
    app = FastAPI()
    install_refusals(app)

    @app.get("/health")
    async def health():
        return "ok"

    @app.get("/long")
    async def long():
        return Response(b"x" * 20_000_000)

    @app.post("/body")
    async def body(request: Request):
        return len(await read_body(request, 1000))

    return app


@pytest.fixture
def connect(monkeypatch):
    """connect() -> a new connection to a server in a thread of this process."""
    monkeypatch.setattr(server, "_said", {})
    listening, ready, opened = server.bind("127.0.0.1", 0), threading.Event(), []
    made = server.make(small_app(), ready.set)
    thread = threading.Thread(target=made.run, args=([listening],))
    thread.start()
    assert ready.wait(30)

    def new(content=b""):
        client = socket.create_connection(new.address, timeout=10)
        opened.append(client)
        client.sendall(content)
        return client

    new.address = listening.getsockname()
    yield new
    for client in opened:
        client.close()
    made.should_exit = True
    thread.join(30)
    listening.close()


@pytest.fixture
def impatient(monkeypatch):
    """Clients are waited for a third of a second."""
    monkeypatch.setattr(server, "SECONDS", dict.fromkeys(server.SECONDS, 0.3))


def status(client):
    return int(client.recv(1000).split()[1])


def is_closed(client, seconds=10):
    client.settimeout(seconds)
    try:
        while client.recv(1_000_000):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_idle_connections_make_room_for_new_ones(connect, monkeypatch, caplog):
    monkeypatch.setattr(server, "most_connections", lambda: 5)
    idle = [connect() for _ in range(12)]
    assert status(connect(HEALTH)) == 200
    assert all(is_closed(client) for client in idle[:8])  # those that waited longest
    assert not any(is_closed(client, 0.05) for client in idle[8:])
    assert len(caplog.messages) == 1  # said once, not for each of them


def test_clients_that_send_nothing_or_too_slowly_are_dropped(connect, impatient):
    silent, between, unfinished = connect(), connect(HEALTH), connect(b"POST /body HTTP/1.1\r\n")
    assert status(between) == 200
    slow = connect()
    began = time.monotonic()
    with pytest.raises(ConnectionError):
        for byte in HEALTH * 10:
            slow.sendall(bytes([byte]))
            time.sleep(0.05)
    assert time.monotonic() - began < 5
    assert all(is_closed(client) for client in (silent, between, unfinished))
    assert status(connect(HEALTH)) == 200


def test_clients_that_hold_back_a_body_or_do_not_read_are_dropped(connect, impatient):
    head = b"POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n"
    assert is_closed(connect(head + b"some"))
    deaf = connect(b"GET /long HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    time.sleep(3)  # several times what the server waits for, also on a busy machine
    received = 0
    with pytest.raises(ConnectionError):  # cut off in the middle
        while piece := deaf.recv(1_000_000):
            received += len(piece)
        raise ConnectionError
    assert received < 20_000_000
    assert status(connect(HEALTH)) == 200


def test_a_body_that_is_too_large_is_answered_not_cut_off(connect):
    head = b"POST /body HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 9000000\r\n\r\n"
    client = connect(head + b"x" * 9_000_000)  # as urllib sends it: all of it, and then it listens
    assert status(client) == 413
    assert status(connect(head)) == 413  # nothing of the body came


def test_a_working_client_keeps_its_connection(connect, impatient):
    client = connect()
    for _ in range(8):
        client.sendall(HEALTH)
        answer = b""
        while not answer.endswith(b'"ok"'):
            answer += client.recv(1000)
        time.sleep(0.1)


def test_nonsense_on_a_connection_writes_no_log(connect, caplog):
    for content in (
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"POST /no HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        client = connect(content)
        assert status(client) in (200, 400, 404)
        client.sendall(b"not a chunk\r\n")
    assert status(connect(HEALTH)) == 200
    assert not caplog.messages


def test_a_process_without_free_files_says_so_once_and_recovers(connect, monkeypatch, caplog):
    monkeypatch.setattr(
        server, "most_connections", lambda: 10**6
    )  # as if other files had taken the room
    connect().close()
    clients = [socket.socket() for _ in range(40)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (clients[-1].fileno() + 10, hard))
    try:
        for client in clients:
            client.connect(connect.address)
        deadline = time.monotonic() + 10
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for client in clients:
            client.close()
    assert status(connect(HEALTH)) == 200
    assert len(caplog.messages) == 1 and "ulimit -n" in caplog.text


def test_room_is_left_for_files(monkeypatch):
    for files, expected in ((64, 32), (1024, 512), (10**6, 512), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert server.most_connections() == expected
        assert server.most_connections() + 3 * server.accepted_at_once() < files % 10**9
