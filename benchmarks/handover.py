"""What others get to hold: the ONNX file against `predict`, and how soon a command answers.

    python benchmarks/handover.py

onnx      labels of onnxruntime and of `predict` on the 10,000 test images of MNIST, for a short fit
          of each kind of model: how many differ, and the largest error of a residual
imports   `python -X importtime`: `import kscn` against `import torch`, and what the first use of an
          estimator adds; medians of several processes in turn
help      `kscn --help`, from the start of the process to its end
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import onnxruntime
import torch
from record import write

from kscn import KSCN, KSCNPlus, KSubspaces, data
from kscn.export.onnxfile import INPUT, compare, onnx_bytes

CAE = {"channels": [20, 10, 5], "kernels": [5, 3, 3], "batch_norm": True}
# Short fits: the graph is that of a long one, and unsettled clusters have the more ties to get
# wrong.
MODELS: dict[str, Any] = {
    "KSCN, cae": lambda: KSCN.from_settings(
        10, subspace_dim=7, autoencoder_params=CAE, pretrain_epochs=2, epochs=2, n_init=1,
        random_state=0,
    ),
    "KSCN, sae": lambda: KSCN.from_settings(
        10, subspace_dim=7, autoencoder="sae", pretrain_epochs=1, epochs=1, n_init=1,
        autoencoder_params={"hidden": [500], "latent_dim": 60}, random_state=0,
    ),
    "KSCNPlus": lambda: KSCNPlus(
        10, starts=2, epochs=3, random_state=0
    ),
    "KSubspaces": lambda: KSubspaces(10, subspace_dim=7, n_init=1, max_iter=10, random_state=0),
}  # fmt: skip
IMPORTS = ("import torch", "import kscn", "from kscn import KSCN")
HELP = "kscn --help"


def exported(images: np.ndarray) -> dict[str, Any]:
    figures = {}
    for name, make in MODELS.items():
        model = make().fit(images)
        content = onnx_bytes(model, images.shape[1:])
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        began = time.perf_counter()
        label = session.run(["label"], {INPUT: images.astype(np.float32)})[0]
        seconds = time.perf_counter() - began
        agreement = compare(content, model, images)
        figures[name] = {
            "images": len(images),
            "different_labels": int((label != model.predict(images)).sum()),
            "largest_residual_error": agreement.error,
            "megabytes": round(len(content) / 1e6, 3),
            "images_per_second": round(len(images) / seconds),
        }
        print(name, figures[name], flush=True)
    return figures


def import_seconds(statement: str) -> float:
    """Time that Python itself accounts to the imports of a statement."""
    return (_microseconds(statement) - _microseconds("pass")) / 1e6


def _microseconds(statement: str) -> int:
    """Microseconds of all modules that no other module imported."""
    command = [sys.executable, "-X", "importtime", "-c", statement]
    account = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    rows = [line.split("|") for line in account.splitlines() if line.count("|") == 2]
    return sum(int(total) for _, total, name in rows[1:] if not name.startswith("   "))


def help_seconds() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", *HELP.split()], capture_output=True, check=True)
    return time.perf_counter() - began


def answers(rounds: int) -> dict[str, Any]:
    times: dict[str, list[float]] = {name: [] for name in (*IMPORTS, HELP)}
    for _ in range(rounds):  # in turn, so that all meet the same machine
        for statement in IMPORTS:
            times[statement].append(import_seconds(statement))
        times[HELP].append(help_seconds())
    seconds = {name: round(statistics.median(values), 4) for name, values in times.items()}
    torch_seconds = seconds["import torch"]
    return {
        "median_seconds": seconds,
        "ratio_to_torch": {name: round(seconds[name] / torch_seconds, 3) for name in IMPORTS[1:]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="processes per import")
    options = parser.parse_args()
    images = np.asarray(data.load("mnist").samples[60_000:])
    figures = {"answers": answers(options.rounds), "onnx": exported(images)}
    config = vars(options) | {"data": "mnist, test images", "threads": torch.get_num_threads()}
    write("handover", config | {"onnxruntime": onnxruntime.__version__}, figures)
    print(json.dumps(figures["answers"], indent=1))


if __name__ == "__main__":
    main()
