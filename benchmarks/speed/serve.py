"""Latency and throughput of `kscn serve`: the entry "serve" of results/speed.json.

    python benchmarks/speed/serve.py [--clients 32] [--requests 1000]

A real process serves a model of the handwritten digits (kSCN-S, convolutional, a short fit: the
figures are about the service, not the clusters). Each client keeps one connection and sends one
image at a time, as a .npy file, waiting for each answer. Every label is compared with `predict`,
and no answer may be lost.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from kscn import data, load_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `record`
import record

KSCN = [sys.executable, "-m", "kscn"]
FIT = ["fit", "digits", "-k", "10", "--method", "kscn-s", "--seed", "0"]
FIT += ["--pretrain-epochs", "2", "--epochs", "1", "--n-init", "1", "-o"]


def cpu_seconds(process: int) -> float:
    """Processor time of a process: what a shared machine does not blur."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(host: str, clients: int, images: np.ndarray, expected: np.ndarray) -> dict[str, Any]:
    """Send every image from one of the clients, each of which keeps its connection."""
    own = threading.local()

    def ask(number: int) -> tuple[float, bool]:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(host, timeout=60)
        body = io.BytesIO()
        np.save(body, images[number])
        kind = {"Content-Type": "application/octet-stream"}
        began = time.perf_counter()
        own.connection.request("POST", "/predict", body.getvalue(), kind)
        answer = own.connection.getresponse()
        content = answer.read()
        seconds = time.perf_counter() - began
        if answer.status != 200:
            return seconds, False
        return seconds, json.loads(content)["predictions"][0]["label"] == expected[number]

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(ask, range(len(images))))
    seconds = time.perf_counter() - began
    latency = 1000 * np.array([spent for spent, _ in answers])
    return {
        "answered": len(answers),
        "right": sum(bool(right) for _, right in answers),
        "lost": len(images) - len(answers),
        "seconds": round(seconds, 3),
        "requests_per_second": round(len(answers) / seconds, 1),
        "p50_ms": round(float(np.percentile(latency, 50)), 2),
        "p99_ms": round(float(np.percentile(latency, 99)), 2),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        subprocess.run([*KSCN, *FIT, run], check=True, stdout=subprocess.DEVNULL)
        images = np.asarray(data.load("digits").samples)[: options.requests]
        chosen = np.arange(options.requests) % len(images)
        expected = load_model(f"{run}/model").predict(images)[chosen]
        with subprocess.Popen([*KSCN, "serve", run, "--port", "0"], stdout=-1, text=True) as it:
            try:
                assert it.stdout is not None
                host = it.stdout.readline().split("http://")[1].split("/")[0].split()[0]
                measure(host, 1, images[:20], expected)  # the first ones load libraries
                before = cpu_seconds(it.pid)
                figures = measure(host, options.clients, images[chosen], expected)
                used = cpu_seconds(it.pid) - before
                figures["server_cpu_ms_per_request"] = round(1000 * used / len(chosen), 2)
                figures["load_average"] = round(os.getloadavg()[0], 1)
            finally:
                it.terminate()
    print(json.dumps(figures, indent=1))
    if not options.dry:
        config = {"clients": options.clients, "requests": options.requests}
        config |= {"data": "digits", "model": "KSCN, cae"}
        record.write("speed", config, figures, entry="serve")


if __name__ == "__main__":
    main()
