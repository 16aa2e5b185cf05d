"""Affinity methods beside ours on the same 10,000 points, in one run: results/affinity.json.

    python benchmarks/affinity.py [METHOD ...]

The points are the 10,000 test images of MNIST as the pretrained SAE encodes them. Every method has
a process of its own, so that its peak of memory is its own; `idle_mb` is that of a process that
only reads the points, which is most of what ours needs. From images to clusters, with what the
paper claims of it: claims.py. `k-subspaces` is ours on the points,
`kscn-s` ours on the images, its pretraining counted. Run alone on the machine; about half an hour.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import write

from kscn import KSCN, KSubspaces, data, metrics
from kscn_paper import environment, methods
from kscn_paper import rivals as baselines

AFFINITY = ("ssc", "lrr", "kssc", "ssc-omp")
OURS = ("k-subspaces", "kscn-s")
LIMIT_MINUTES, LIMIT_GB = 20, 12


def estimator(name: str) -> KSubspaces | KSCN | Any:
    if name == "k-subspaces":
        return KSubspaces(10, subspace_dim=3, random_state=0)
    if name == "kscn-s":
        return methods.configured(
            name,
            10,
            preset="tuned",
            dataset="mnist-test",
            shape=(28, 28),
            random_state=0,
            callbacks=(),
        )
    return baselines.make(name, 10, random_state=0)


def measure(name: str, points: str) -> dict[str, Any]:
    """Fit one method in this process."""
    images = data.load("mnist-test")
    X = images.samples if name == "kscn-s" else np.load(points)
    environment.reset_peak_memory()
    if name == "nothing":
        return {"peak_mb": environment.peak_memory_mb()}
    began = time.perf_counter()
    model = estimator(name).fit(X)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "peak_mb": environment.peak_memory_mb(),
        **metrics.scores(images.labels, model.labels_),
    }


def in_process(name: str, *arguments: str, script: str = __file__) -> dict[str, Any]:
    """What `script --one NAME ...` prints last, from a process of its own."""
    command = [sys.executable, script, "--one", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(names: list[str]) -> None:
    sae = baselines.make("sae-km", 10, random_state=0).fit(data.load("mnist-test").samples)
    with tempfile.TemporaryDirectory() as folder:
        points = str(Path(folder) / "points.npy")
        np.save(points, sae.transform(data.load("mnist-test").samples))
        empty = in_process("nothing", points)["peak_mb"]
        figures = {}
        for name in names:
            found = in_process(name, points)
            found["idle_mb"] = empty
            figures[name] = found
            print(name, found, flush=True)
    for name, found in figures.items():
        if name in AFFINITY:
            found["within_limits"] = (
                found["seconds"] < 60 * LIMIT_MINUTES and found["peak_mb"] < 1000 * LIMIT_GB
            )
            for ours in OURS:
                if ours in figures:
                    found[f"time_over_{ours}"] = found["seconds"] / figures[ours]["seconds"]
                    found[f"memory_over_{ours}"] = found["peak_mb"] / figures[ours]["peak_mb"]
    config = {"dimension": int(sae.autoencoder_.latent_dim), "samples": 10_000}
    write("affinity", {"dataset": "mnist-test", "features": "sae", **config, "seed": 0}, figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(*sys.argv[2:4])))
    else:
        main(sys.argv[1:] or [*OURS, *AFFINITY])
