"""Our baselines beside other people's, on the same data and settings: results/peers.json.

    python benchmarks/peers.py --clustpy PYTHON [DEC] [DCN]
    python benchmarks/peers.py ssc-omp

DEC, DCN  against ClustPy, on the 10,000 test images of MNIST as vectors of mean square one: the
          same network (500-500-2000-10), batches, epochs, learning rates and loss weights, no
          layer-wise pretraining. PYTHON is that of an environment with clustpy (see
          clustpy_rivals.py).
ssc-omp   against scikit-learn's `orthogonal_mp` per sample and `SpectralClustering`, on digits
          and on a union of subspaces

The times are ratios of one run: alone on the machine, both in turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import record
from scipy import sparse
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_digits
from sklearn.linear_model import orthogonal_mp

from kscn import data, metrics
from kscn_paper import rivals as baselines

PRETRAIN, EPOCHS, BATCH = 20, 15, 256
RIVALS = Path(__file__).with_name("clustpy_rivals.py")


def ours(kind: str, X: np.ndarray, pretrain: int, epochs: int) -> tuple[float, np.ndarray]:
    """Seconds and labels of our DEC or DCN with the settings that ClustPy has by default."""
    steps = -(-len(X) // BATCH)
    own: dict[str, Any] = {
        # Ours renews the target after so many steps, ClustPy's in every step.
        "dec": {"update_every": steps, "max_iter": epochs, "tol": 0.0},
        # ClustPy: mean squared error + 0.1 |z - m|^2; ours: squared error + weight/2 |z - m|^2.
        "dcn": {"weight": 2 * 0.1 * X.shape[1], "epochs": epochs, "learning_rate": 1e-4},
    }[kind]
    model = baselines.make(
        kind,
        10,
        layer_epochs=0,
        pretrain_epochs=pretrain,
        batch_size=BATCH,
        n_init=1,
        cache=False,
        random_state=0,
        **own,
    )
    began = time.perf_counter()
    model.fit(X)
    return time.perf_counter() - began, model.labels_


def theirs(
    python: str, kind: str, X: np.ndarray, pretrain: int, epochs: int
) -> tuple[float, np.ndarray]:
    """The same of ClustPy, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/X.npy", X)
        command = [python, str(RIVALS), "same", kind.upper(), folder, str(pretrain), str(epochs)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = json.loads(Path(f"{folder}/seconds.json").read_text())
        return seconds, np.load(f"{folder}/labels.npy")


def deep(kind: str, python: str) -> dict[str, Any]:
    images = data.load("mnist-test")
    X = np.asarray(images.samples).reshape(len(images.samples), -1).astype(np.float32)
    X /= np.sqrt(np.square(X, dtype=np.float64).mean())
    figures = {}
    runs = {
        "ours": lambda *epochs: ours(kind, X, *epochs),
        "clustpy": lambda *epochs: theirs(python, kind, X, *epochs),
    }
    for who, run in runs.items():
        # One epoch each, without the fixed costs: differences between runs of different length.
        shortest, _ = run(1, 1)
        clustered, _ = run(1, EPOCHS)
        whole, labels = run(PRETRAIN, EPOCHS)
        figures[who] = {
            "pretraining_seconds_per_epoch": (whole - clustered) / (PRETRAIN - 1),
            "clustering_seconds_per_epoch": (clustered - shortest) / (EPOCHS - 1),
            "seconds": whole,
            **metrics.scores(images.labels, labels),
        }
        print(kind, who, figures[who], flush=True)
    return figures


def plain_ssc_omp(X: np.ndarray, k: int, n_nonzero: int) -> np.ndarray:
    """What a user would write with scikit-learn."""
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    codes = np.zeros((len(X), len(X)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of samples that fewer picks write exactly
        for j in range(len(X)):
            others = np.delete(np.arange(len(X)), j)
            codes[j, others] = orthogonal_mp(X[others].T, X[j], n_nonzero_coefs=n_nonzero)
    affinity = sparse.csr_array(np.abs(codes) + np.abs(codes).T)
    spectral = SpectralClustering(k, affinity="precomputed", random_state=0)
    return np.asarray(spectral.fit_predict(affinity))


def ssc_omp() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.standard_normal((60, 6)))[0] for _ in range(5)]
    union = np.concatenate([rng.standard_normal((400, 6)) @ basis.T for basis in bases])
    union += 0.02 * rng.standard_normal(union.shape)
    digits = load_digits()
    problems = {
        "union of 5 subspaces": (union, np.repeat(np.arange(5), 400), 5),
        "digits": (digits.data, digits.target, 10),
    }
    baselines.make("ssc-omp", 5, random_state=0).fit(union[::20])  # imports are no part of it
    figures = {}
    for name, (X, truth, k) in problems.items():
        found = {}
        for who, run in {
            "ours": lambda X=X, k=k: (
                baselines.make("ssc-omp", k, n_nonzero=6, random_state=0).fit(X).labels_
            ),
            "scikit-learn": lambda X=X, k=k: plain_ssc_omp(X, k, 6),
        }.items():
            began = time.perf_counter()
            labels = run()
            seconds = time.perf_counter() - began
            found[who] = {"seconds": seconds, **metrics.scores(truth, labels)}
        found["times_faster"] = found["scikit-learn"]["seconds"] / found["ours"]["seconds"]
        figures[name] = {"samples": len(X), **found}
        print(name, found, flush=True)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clustpy", metavar="PYTHON", help="an environment with clustpy")
    parser.add_argument("what", nargs="*", default=["DEC", "DCN", "ssc-omp"])
    asked = parser.parse_args()
    figures = record.figures("peers")
    for what in asked.what:
        if what == "ssc-omp":
            figures[what] = ssc_omp()
        elif asked.clustpy:
            figures[what] = deep(what.lower(), asked.clustpy)
        else:
            parser.error(f"{what} needs --clustpy PYTHON")
    config = {"pretrain_epochs": PRETRAIN, "epochs": EPOCHS, "batch_size": BATCH, "seed": 0}
    record.write("peers", config, figures)
