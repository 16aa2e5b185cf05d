"""Malformed requests, sent to a real `kscn serve` and a real `kscn explore`, for fuzz.py.

Each server must answer or close every connection within some seconds, never with a 5xx status, and
every few cases give a usual answer to a usual request within a second. In the end both still run,
have grown by a bounded amount and written no traceback, and the files of the run are as they were,
but for the edits that `explore` was asked for.
"""

from __future__ import annotations

import http.client
import io
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from mutations import mutated

KSCN = [sys.executable, "-m", "kscn"]
FIT = ["--method", "k-subspaces", "--subspace-dim", "2", "--n-init", "1", "--seed", "0"]
PATIENCE, SECONDS = 1.0, 20.0  # before a request is ended, and after that
USUAL_SECONDS, MOST_MB, EVERY = 1.0, 200.0, 20
LENGTHS = ["Content-Length: 0", "Content-Length: -1", "Content-Length: 99999999999999",
           "Transfer-Encoding: chunked", "Content-Length: 1\r\nContent-Length: 2"]  # fmt: skip
HOSTS = [b"evil.example", b"127.0.0.1.evil.example", b"[::1]", b"localhost:1", b""]


class Server:
    """One of the two, its address, and requests that it answers."""

    def __init__(self, name: str, run: Path) -> None:
        self.name, self.log = name, (run.parent / f"{name}.log").open("w+")
        command = [*KSCN, name, str(run), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=-1, stderr=self.log, text=True)
        assert self.process.stdout is not None
        address = re.search(r"http://([\d.]+:\d+)(\S*)", self.process.stdout.readline())
        assert address, f"kscn {name} printed no address"
        self.host = address[1]
        page = self.page(address[2])
        self.templates = [r for r in (*self.predictions(), *page) if self.status(r) == 200]
        assert len(self.templates) >= 4, f"kscn {name} answers {self.templates} only"
        self.before = self.megabytes()

    def predictions(self) -> list[bytes]:
        samples, stream = np.zeros((2, 6), dtype=np.float32), io.BytesIO()
        np.save(stream, samples)
        bodies = {"application/json": json.dumps({"samples": samples.tolist()}).encode()}
        bodies["application/octet-stream"] = stream.getvalue()
        posts = [self.request("POST", "/predict", body, kind) for kind, body in bodies.items()]
        return [*posts, self.request("GET", "/health"), self.request("GET", "/openapi.json")]

    def page(self, path: str) -> list[bytes]:
        """Requests of the page, with the cookie that its address with the token leads to."""
        connection = http.client.HTTPConnection(self.host, timeout=SECONDS)
        connection.request("GET", path or "/")
        answer = connection.getresponse()
        page = (answer.getheader("Location") or "/").split("?")[0]
        cookie = (answer.getheader("Set-Cookie") or "").split(";")[0]
        head = f"Cookie: {cookie}\r\nOrigin: http://{self.host}\r\n"
        edit = json.dumps({"edit": "name", "cluster": 0, "name": "first"}).encode()
        gets = ["", "api/state", "api/members?cluster=0&offset=0", "api/samples/0", "labels.csv"]
        requests = [self.request("GET", page + where, head=head) for where in gets]
        return [*requests, self.request("POST", f"{page}api/edits", edit, "application/json", head)]

    def request(
        self, method: str, path: str, body: bytes = b"", kind: str = "", head: str = ""
    ) -> bytes:
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
        top = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n"
        return f"{top}{head}\r\n".encode() + body

    def status(self, request: bytes) -> int:
        """Of the answer, 0 where the connection was closed without one.

        Where no answer comes, the server waits for more of the request, whose end it is then told.
        """
        answer = b""
        host, port = self.host.split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            try:
                connection.sendall(request)
                while piece := self.received(connection):
                    answer += piece
            except (ConnectionResetError, BrokenPipeError):
                pass
        found = re.match(rb"HTTP/1\.\d (\d{3})", answer)
        return int(found[1]) if found else 0

    def received(self, connection: socket.socket) -> bytes:
        try:
            return connection.recv(65536)
        except TimeoutError:
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(SECONDS)
            return connection.recv(65536)

    def megabytes(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def faults(self) -> list[str]:
        """What is wrong with the server after everything, which is then ended."""
        wrong = ["it has ended"] if self.process.poll() is not None else []
        if not wrong and self.megabytes() - self.before > MOST_MB:
            wrong.append(f"it has grown by {self.megabytes() - self.before:.0f} MB")
        self.process.terminate()
        self.process.wait()
        self.log.seek(0)
        text = self.log.read()
        return [*wrong, text[-600:]] if "Traceback" in text else wrong


def damaged(request: bytes, rng: random.Random) -> bytes:
    """A request with some bytes changed, another body, other lengths, or a foreign host."""
    head, _, body = request.partition(b"\r\n\r\n")
    what = rng.choice(["all", "head", "body", "length", "host", "deep"])
    if what == "all":
        return mutated(request, rng)
    if what == "head":
        return mutated(head, rng) + b"\r\n\r\n" + body
    if what == "length":
        return head + b"\r\n" + rng.choice(LENGTHS).encode() + b"\r\n\r\n" + body
    if what == "host":
        head = re.sub(rb"Host: [^\r]*", b"Host: " + rng.choice(HOSTS), head)
    elif what == "deep":
        body = b"[" * rng.choice([10, 10_000, 1_000_000])
    else:
        body = mutated(body, rng)
    head = re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(body), head)
    return head + b"\r\n\r\n" + body


def contents(run: Path) -> dict[Path, bytes]:
    """All files of a run but the edits."""
    files = [file for file in run.rglob("*") if file.is_file() and "edits" not in file.name]
    return {file: file.read_bytes() for file in files}


def fuzz(seed: int, count: int) -> dict[str, Any]:
    """Send all cases and tell what came back."""
    statuses: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    slowest, began = 0.0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kscn-fuzz-") as folder:
        data, run = Path(folder) / "x.npy", Path(folder) / "run"
        np.save(data, np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32))
        fit = [*KSCN, "fit", str(data), "-k", "2", "-o", str(run), *FIT]
        subprocess.run(fit, check=True, stdout=subprocess.DEVNULL)
        servers, before = [Server("serve", run), Server("explore", run)], contents(run)
        for number in range(count):
            rng, server = random.Random(f"requests {seed} {number}"), servers[number % 2]
            usual, template = number % EVERY < 2, rng.choice(server.templates)
            asked = time.monotonic()
            try:
                status = server.status(template if usual else damaged(template, rng))
            except OSError as error:  # no answer in time, or nobody there
                failures.append({"case": number, "what": f"{server.name}: {error!r}"})
                continue
            seconds = time.monotonic() - asked
            statuses[f"{server.name} {status or 'closed'}"] += 1
            slowest = max(slowest, seconds)
            if status >= 500 or (usual and (status != 200 or seconds > USUAL_SECONDS)):
                what = f"{server.name}: status {status} after {seconds:.1f} s"
                failures.append({"case": number, "what": what})
            if number % 100 == 99:
                print(f"requests: {number + 1} cases, {len(failures)} failures", flush=True)
        for server in servers:
            failures += [{"case": server.name, "what": what} for what in server.faults()]
        if contents(run) != before:
            failures.append({"case": "run", "what": "its files have changed"})
    return {
        "cases": count,
        "failed": len(failures),
        "failures": failures[:100],
        "statuses": dict(sorted(statuses.items())),
        "slowest_seconds": round(slowest, 2),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
