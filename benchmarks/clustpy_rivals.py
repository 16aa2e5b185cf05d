"""ClustPy's DEC and DCN on MNIST beside kSCN, on the same machine: results/clustpy.json.

Run with the Python of an environment of its own that has clustpy and torch (CPU), not kscn:

    python benchmarks/clustpy_rivals.py epochs          seconds per epoch, 70,000 images
    python benchmarks/clustpy_rivals.py DEC DCN         to their default finish, 10,000 test images
    python benchmarks/clustpy_rivals.py same KIND FOLDER PRETRAIN EPOCHS     for peers.py

KSCN_DATA must hold mnist/ as idx files. ClustPy imports torchvision, whose wheels need a CUDA torch
of several gigabytes; it uses it for loading and augmenting images only, neither of which happens
here, so an empty module of that name stands in for it where it is missing.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import sys
import time
import types
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch


class _Empty(types.ModuleType):
    """A module in which every name is a class of its own without content."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    for name in ("", ".transforms", ".datasets", ".models", ".models._api", ".models.resnet"):
        sys.modules[f"torchvision{name}"] = _Empty(f"torchvision{name}")

from clustpy.deep import DCN, DEC  # noqa: E402
from sklearn.metrics import normalized_mutual_info_score  # noqa: E402

RESULTS = Path(__file__).resolve().parent.parent / "results"


def mnist(*parts: str) -> tuple[np.ndarray, np.ndarray]:
    """Flattened images in 0..1 and labels."""
    folder = Path(os.environ["KSCN_DATA"]) / "mnist"

    def read(name: str, offset: int) -> np.ndarray:
        with gzip.open(folder / f"{name}.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=offset)

    images = [read(f"{part}-images-idx3-ubyte", 16).reshape(-1, 784) for part in parts]
    labels = [read(f"{part}-labels-idx1-ubyte", 8) for part in parts]
    return np.concatenate(images).astype(np.float32) / 255, np.concatenate(labels)


def accuracy(truth: np.ndarray, found: np.ndarray) -> float:
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((10, max(10, found.max() + 1)))
    np.add.at(counts, (truth, found), 1)
    rows, columns = linear_sum_assignment(-counts)
    return float(counts[rows, columns].sum() / len(truth))


def timed(kind: Any, X: np.ndarray, **epochs: Any) -> tuple[float, Any]:
    model = kind(10, random_state=0, **epochs)
    began = time.perf_counter()
    model.fit(X)
    return time.perf_counter() - began, model


def epochs() -> dict[str, Any]:
    """Differences between runs of different length: one epoch each, without the fixed costs."""
    X, _ = mnist("train", "t10k")
    figures = {}
    for kind in (DEC, DCN):
        short, _ = timed(kind, X, pretrain_epochs=1, clustering_epochs=1)
        pretrained, _ = timed(kind, X, pretrain_epochs=2, clustering_epochs=1)
        clustered, _ = timed(kind, X, pretrain_epochs=1, clustering_epochs=2)
        default = kind(10)
        pre, fit = pretrained - short, clustered - short
        whole = pre * default.pretrain_epochs + fit * default.clustering_epochs
        figures[kind.__name__] = {
            "pretrain_seconds_per_epoch": pre,
            "clustering_seconds_per_epoch": fit,
            "default_epochs": [default.pretrain_epochs, default.clustering_epochs],
            "minutes_to_default_finish_extrapolated": whole / 60,
        }
        print(kind.__name__, figures[kind.__name__], flush=True)
    return figures


def finish(kind: Any) -> dict[str, Any]:
    X, y = mnist("t10k")
    seconds, model = timed(kind, X)
    figures = {
        "minutes": seconds / 60,
        "acc": accuracy(y, model.labels_),
        "nmi": float(normalized_mutual_info_score(y, model.labels_)),
        "load": os.getloadavg(),
    }
    print(kind.__name__, figures, flush=True)
    return figures


def same(kind: str, folder: str, pretrain: str, epochs: str) -> None:
    """Fit the samples in folder/X.npy; seconds and labels go there too."""
    X = np.load(f"{folder}/X.npy")
    seconds, model = timed(
        {"DEC": DEC, "DCN": DCN}[kind],
        X,
        pretrain_epochs=int(pretrain),
        clustering_epochs=int(epochs),
    )
    # `labels_` are those of k-means run again on the final latents; these are the method's own.
    np.save(f"{folder}/labels.npy", getattr(model, f"{kind.lower()}_labels_"))
    Path(f"{folder}/seconds.json").write_text(json.dumps(seconds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["same"]:
        same(*sys.argv[2:])
        sys.exit()
    path = RESULTS / "clustpy.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    for name in sys.argv[1:] or ["epochs", "DEC", "DCN"]:
        record[name] = {
            "command": f"python benchmarks/clustpy_rivals.py {name}",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": {p: version(p) for p in ("clustpy", "torch", "numpy")},
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "seed": 0,
            "figures": epochs() if name == "epochs" else finish({"DEC": DEC, "DCN": DCN}[name]),
        }
        path.write_text(json.dumps(record, indent=1) + "\n")
