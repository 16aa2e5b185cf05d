"""`kscn serve`: a real process that answers, or one sentence."""

import json
import signal
import socket
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")


@pytest.fixture
def service(start, finished):
    """Start `kscn serve` on the finished run; gives the process and its address."""

    def begin(*options):
        process = start("serve", finished, "--port", 0, *options)
        line = process.first_line()
        assert line.startswith(f"serving {finished} at http://127.0.0.1:")
        return process, line.split(" at ")[1].split()[0]

    return begin


def ask(address, body=None, **headers):
    request = urllib.request.Request(address, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_it_answers_as_predict_does_and_ends_on_interrupt(service, kscn, finished, files, tmp_path):
    process, address = service("--token", "abc")
    assert ask(f"{address}/health")[1]["clusters"] == 3
    body = (files / "x.npy").read_bytes()
    kind = {"Content-Type": "application/octet-stream"}
    assert ask(f"{address}/predict", body, **kind)[0] == 401
    status, answer = ask(f"{address}/predict", body, **kind, Authorization="Bearer abc")
    assert status == 200, answer
    assert kscn("predict", finished, files / "x.npy", "-o", tmp_path / "y.csv").exit_code == 0
    expected = np.loadtxt(tmp_path / "y.csv", delimiter=",", skiprows=1, dtype=int)[:, 1]
    assert [row["label"] for row in answer["predictions"]] == expected.tolist()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert "Traceback" not in process.communicate()[1]


def test_beyond_this_machine_a_token_is_needed(one_sentence, kscn, finished, monkeypatch):
    apps = []
    monkeypatch.setattr("kscn.web.server.run", lambda app, listening: apps.append(app))
    for host in ("0.0.0.0", "::", "box.local"):
        assert "set --token" in one_sentence(kscn("serve", finished, "--host", host))
    open_to_all = ("--host", "0.0.0.0", "--token", "abc")
    for options in ((), ("--host", "localhost"), open_to_all):
        assert kscn("serve", finished, "--port", 0, *options).exit_code == 0
    assert len(apps) == 3


def test_a_port_that_is_taken_is_named(one_sentence, kscn, finished):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = one_sentence(kscn("serve", finished, "--port", port))
        assert f"cannot listen on 127.0.0.1:{port}" in words


def test_the_token_can_come_from_the_environment(one_sentence, kscn, finished):
    result = kscn("serve", finished, env={"KSCN_TOKEN": "\t"})
    assert "printable ASCII" in one_sentence(result)


def test_a_missing_package_is_named(one_sentence, kscn, finished, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    words = one_sentence(kscn("serve", finished))
    assert "uvicorn" in words and "kscn[serve]" in words
