"""Latency and throughput of `kscn serve`: 1,000 requests from 32 clients, none may be lost.

    python benchmarks/serve.py [--clients 32] [--requests 1000]

A real process serves a model of the handwritten digits (kSCN-S, convolutional, 2 epochs: the
figures are about the service, not the clusters). Each client keeps one connection and sends one
image at a time, as a .npy file, waiting for each answer. Every label is compared with `predict`.
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
from pathlib import Path

import numpy as np
import record

from kscn import KSCN, data, load_model

QUICK = """
[common]
n_init = 1
pretrain_epochs = 2
epochs = 1
[images]
subspace_dim = 4
autoencoder_params = { channels = [16, 8], kernels = [3, 3] }
"""


def fitted(folder: Path) -> None:
    """A run directory as `kscn fit` writes it."""
    preset = folder / "quick.toml"
    preset.write_text(QUICK)
    command = [sys.executable, "-m", "kscn", "fit", "digits", "-k", "10", "-o", folder / "run"]
    options = ["--method", "kscn-s", "--preset", preset, "--seed", "0"]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)


def body_of(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, image)
    return file.getvalue()


def client(port: int, work: list[int], bodies: list[bytes], answers: dict, times: dict) -> None:
    """Send requests until there are none left; two clients never take the same one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    head = {"Content-Type": "application/octet-stream"}
    while True:
        try:
            number = work.pop()
        except IndexError:
            return
        began = time.perf_counter()
        connection.request("POST", "/predict", bodies[number], head)
        response = connection.getresponse()
        content = response.read()
        times[number] = time.perf_counter() - began
        answers[number] = (response.status, content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fitted(folder)
        model = load_model(folder / "run" / "model")
        assert isinstance(model, KSCN)
        images = np.asarray(data.load("digits").samples)[: options.requests]
        chosen = np.arange(options.requests) % len(images)
        expected = model.predict(images)[chosen]
        bodies = [body_of(images[i]) for i in chosen]
        command = [sys.executable, "-m", "kscn", "serve", str(folder / "run"), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as it:
            try:
                assert it.stdout is not None
                port = int(it.stdout.readline().split("http://127.0.0.1:")[1].split()[0])
                client(port, list(range(20)), bodies, {}, {})  # the first ones load libraries
                before = cpu_seconds(it.pid)
                figures = measure(port, options.clients, bodies, expected)
                used = cpu_seconds(it.pid) - before
                figures["server_cpu_ms_per_request"] = round(1000 * used / len(bodies), 2)
                figures["load_average"] = round(os.getloadavg()[0], 1)
            finally:
                it.terminate()
    record.write("serve", vars(options) | {"data": "digits", "model": "KSCN, cae"}, figures)
    print(json.dumps(figures, indent=1))


def cpu_seconds(process: int) -> float:
    """Processor time of a process: what a shared machine does not blur."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(port: int, clients: int, bodies: list[bytes], expected: np.ndarray) -> dict:
    answers: dict[int, tuple[int, bytes]] = {}
    times: dict[int, float] = {}
    work = list(range(len(bodies)))
    threads = [
        threading.Thread(target=client, args=(port, work, bodies, answers, times))
        for _ in range(clients)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    right = [
        status == 200 and json.loads(content)["predictions"][0]["label"] == expected[number]
        for number, (status, content) in answers.items()
    ]
    latency = 1000 * np.array(list(times.values()))
    return {
        "answered": len(answers),
        "right": int(sum(right)),
        "lost": len(bodies) - len(answers),
        "seconds": round(seconds, 3),
        "requests_per_second": round(len(answers) / seconds, 1),
        "p50_ms": round(float(np.percentile(latency, 50)), 2),
        "p99_ms": round(float(np.percentile(latency, 99)), 2),
    }


if __name__ == "__main__":
    main()
