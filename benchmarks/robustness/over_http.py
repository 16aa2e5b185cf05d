"""Malformed requests, sent to a real `kscn serve` and a real `kscn explore`, for fuzz.py.

Each server must answer or close every connection within some seconds, never with a 5xx status, and
after every few cases give the usual answer to a usual request within a second. In the end both
still run, have grown by a bounded amount, have written no traceback, and the run directory is as
it was, but for the edits that `explore` was asked for.
"""

from __future__ import annotations

import hashlib
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

FIT = "--method k-subspaces --subspace-dim 2 --n-init 1 --seed 0"
PATIENCE, SECONDS = 1.0, 20.0  # before a request is ended, and after that
USUAL_SECONDS, MOST_MB, EVERY = 1.0, 200.0, 20
LENGTHS = ["Content-Length: 0", "Content-Length: -1", "Content-Length: 99999999999999",
           "Transfer-Encoding: chunked", "Content-Length: 1\r\nContent-Length: 2"]  # fmt: skip


class Server:
    """One of the two, its address, and requests that it answers."""

    def __init__(self, name: str, run: Path) -> None:
        self.name, self.log = name, (run.parent / f"{name}.log").open("w+")
        command = [sys.executable, "-m", "kscn", name, str(run), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=-1, stderr=self.log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://([\d.]+):(\d+)(\S*)", line)
        assert found, f"kscn {name} said {line!r}"
        self.host, self.port = found[1], int(found[2])
        self.templates = self._predictions() if name == "serve" else self._page(found[3] or "/")
        self.usual = {template: self.ask(template)[:15] for template in self.templates}
        wrong = {t: answer for t, answer in self.usual.items() if not 200 <= status(answer) < 300}
        assert not wrong, wrong
        self.before = self.megabytes()

    def _predictions(self) -> list[bytes]:
        samples = np.zeros((2, 6), dtype=np.float32)
        stream = io.BytesIO()
        np.save(stream, samples)
        text = json.dumps({"samples": samples.tolist()}).encode()
        bodies = [("application/json", text), ("application/octet-stream", stream.getvalue())]
        posts = [self.request("POST", "/predict", body, kind) for kind, body in bodies]
        return [*posts, self.request("GET", "/health"), self.request("GET", "/openapi.json")]

    def _page(self, path: str) -> list[bytes]:
        """Requests of the page, with the cookie that its address with the token leads to."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)
        connection.request("GET", path)
        answer = connection.getresponse()
        page = (answer.getheader("Location") or path).split("?")[0]
        cookie = (answer.getheader("Set-Cookie") or "").split(";")[0]
        head = f"Cookie: {cookie}\r\nOrigin: http://{self.host}:{self.port}\r\n"
        edit = json.dumps({"edit": "name", "cluster": 0, "name": "first"}).encode()
        gets = ["", "api/state", "api/members?cluster=0&offset=0", "api/samples/0", "labels.csv"]
        requests = [self.request("GET", page + where, head=head) for where in gets]
        post = self.request("POST", f"{page}api/edits", edit, "application/json", head)
        return [request for request in (*requests, post) if status(self.ask(request)) == 200]

    def request(
        self, method: str, path: str, body: bytes = b"", kind: str = "", head: str = ""
    ) -> bytes:
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
        top = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n"
        return f"{top}{head}\r\n".encode() + body

    def ask(self, request: bytes) -> bytes:
        """The answer up to the end of the connection; a wait for more of the request is ended."""
        answer = b""
        with socket.create_connection((self.host, self.port), timeout=PATIENCE) as connection:
            try:
                connection.sendall(request)
                while True:
                    try:
                        piece = connection.recv(65536)
                    except TimeoutError:
                        connection.shutdown(socket.SHUT_WR)
                        connection.settimeout(SECONDS)
                        piece = connection.recv(65536)
                    if not piece:
                        return answer
                    answer += piece
            except (ConnectionResetError, BrokenPipeError):
                return answer  # closed: that is an answer too

    def megabytes(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.\d (\d{3})", answer)
    return int(found[1]) if found else 0


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
        names = [b"evil.example", b"127.0.0.1.evil.example", b"[::1]", b"localhost:1", b""]
        head = re.sub(rb"Host: [^\r]*", b"Host: " + rng.choice(names), head)
    body = mutated(body, rng) if what == "body" else body
    body = b"[" * rng.choice([10, 10_000, 1_000_000]) if what == "deep" else body
    return (
        re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(body), head)
        + b"\r\n\r\n"
        + body
    )


def digests(run: Path) -> dict[str, str]:
    """All files of a run but the edits."""
    return {
        str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(run.rglob("*"))
        if file.is_file()
        and "edits" not in file.name
        and "explore" not in str(file.relative_to(run))
    }


def fuzz(seed: int, count: int) -> dict[str, Any]:
    """Send all cases and tell what came back."""
    statuses: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    slowest, began = 0.0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kscn-fuzz-") as folder:
        np.save(f"{folder}/x.npy", np.random.default_rng(0).normal(size=(60, 6)).astype("f4"))
        run = Path(folder) / "run"
        fit = ["fit", f"{folder}/x.npy", "-k", "2", "-o", str(run), *FIT.split()]
        subprocess.run([sys.executable, "-m", "kscn", *fit], check=True, stdout=subprocess.DEVNULL)
        before = digests(run)
        servers = [Server("serve", run), Server("explore", run)]
        for number in range(count):
            rng, server = random.Random(f"requests {seed} {number}"), servers[number % 2]
            usual = number % EVERY < 2
            template = rng.choice(server.templates)
            asked = time.monotonic()
            try:
                answer = server.ask(template if usual else damaged(template, rng))
            except OSError as error:
                failures.append({"case": number, "what": f"{server.name}: {error!r}"})
                continue
            seconds = time.monotonic() - asked
            statuses[f"{server.name} {status(answer) or 'closed'}"] += 1
            slowest = max(slowest, seconds)
            if status(answer) >= 500:
                failures.append({"case": number, "what": f"{server.name}: {answer[:200]!r}"})
            if usual and (answer[:15] != server.usual[template] or seconds > USUAL_SECONDS):
                failures.append(
                    {"case": number, "what": f"{server.name}: {seconds:.1f} s, {answer[:99]!r}"}
                )
            if number % 100 == 99:
                print(f"requests: {number + 1} cases, {len(failures)} failures", flush=True)
        for server in servers:
            if server.process.poll() is not None or server.megabytes() - server.before > MOST_MB:
                failures.append({"case": None, "what": f"{server.name} ended or grew"})
            server.process.terminate()
            server.process.wait()
            server.log.seek(0)
            if "Traceback" in (text := server.log.read()):
                failures.append({"case": None, "what": f"{server.name} wrote {text[-600:]}"})
        if digests(run) != before:
            failures.append({"case": None, "what": "files of the run have changed"})
    minutes = round((time.monotonic() - began) / 60, 1)
    return {"cases": count, "failures": failures[:100], "statuses": dict(sorted(statuses.items())),
            "slowest_seconds": round(slowest, 2), "minutes": minutes}  # fmt: skip
