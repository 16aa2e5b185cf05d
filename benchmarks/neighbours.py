"""Approximate nearest neighbours: libraries side by side on 50,000 x 64, one thread each.

    python benchmarks/neighbours.py ["faiss, graph (ours)" ...]

The 20 nearest of every sample, in seconds of processor time, building included, and the share of
the true ones among them. Rows that are not named keep their figures, and a library that is not
installed is left out. Samples are points near 100 subspaces of dimension 12 with some noise.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.metadata import files, version
from importlib.util import find_spec
from typing import Any

import numpy as np
import record
import torch
from numpy.typing import NDArray

from kscn import data
from kscn.neighbours import nearest

SAMPLES, DIMENSIONS, COUNT = 50_000, 64, 20
ASKED = 2000  # samples that the share is taken over
# By name of the module: what is installed with it, besides numpy and scipy.
PACKAGES = {
    "faiss": ["faiss-cpu"],
    "usearch": ["usearch", "numkong"],
    "pynndescent": ["pynndescent", "numba", "llvmlite"],
}


def exact(x: NDArray) -> NDArray:
    return nearest(torch.from_numpy(x), COUNT).index.numpy()


def ours(x: NDArray) -> NDArray:
    return nearest(torch.from_numpy(x), COUNT, index="approximate").index.numpy()


def faiss_cells(x: NDArray) -> NDArray:
    import faiss

    cells = round(2 * len(x) ** 0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(x.shape[1]), x.shape[1], cells)
    index.train(x)
    index.add(x)
    index.nprobe = 48
    return index.search(x, COUNT + 1)[1]


def usearch_graph(x: NDArray) -> NDArray:
    from usearch.index import Index

    index = Index(ndim=x.shape[1], metric="l2sq", dtype="f32", connectivity=16)
    index.add(np.arange(len(x)), x, threads=1)
    return index.search(x, COUNT + 1, threads=1).keys.astype(np.int64)


def pynndescent_graph(x: NDArray) -> NDArray:
    from pynndescent import NNDescent

    return NNDescent(x, n_neighbors=COUNT + 1, random_state=0, n_jobs=1).neighbor_graph[0]


RIVALS: dict[str, tuple[str | None, Callable[[NDArray], NDArray]]] = {
    "exact": (None, exact),
    "faiss, graph (ours)": ("faiss", ours),
    "faiss, cells": ("faiss", faiss_cells),
    "usearch, graph": ("usearch", usearch_graph),
    "pynndescent": ("pynndescent", pynndescent_graph),
}


def nearest_of(x: NDArray, rows: NDArray) -> NDArray:
    """The true neighbours of some samples."""
    distance = (x**2).sum(axis=1) - 2 * x[rows] @ x.T
    distance[np.arange(len(rows)), rows] = np.inf
    return np.argpartition(distance, COUNT, axis=1)[:, :COUNT]


def recall(found: NDArray, true: NDArray, rows: NDArray) -> float:
    """Share of the true neighbours that were found; oneself counts for nothing."""
    shares = [len({*a} & {*b}) / COUNT for a, b in zip(found[rows], true, strict=True)]
    return float(np.mean(shares))


def megabytes(packages: list[str]) -> float:
    """What the packages take on disk, without numpy and scipy."""
    sizes = [f.locate().stat().st_size for p in packages for f in files(p) or [] if _there(f)]
    return sum(sizes) / 1e6


def _there(file: Any) -> bool:
    return bool(file.locate().exists())


def main() -> None:
    torch.set_num_threads(1)
    samples, _, _ = data.make_union_of_subspaces(
        SAMPLES, 100, DIMENSIONS, 12, noise=0.05, random_state=0
    )
    x = np.ascontiguousarray(samples, dtype=np.float32)
    rows = np.random.default_rng(0).choice(len(x), ASKED, replace=False)
    true = nearest_of(x, rows)
    config = {"samples": len(x), "dimensions": DIMENSIONS, "neighbours": COUNT, "threads": 1}
    figures = record.figures("neighbours") if sys.argv[1:] else {}
    for name in sys.argv[1:] or RIVALS:
        module, run = RIVALS[name]
        if module is not None and find_spec(module) is None:
            print(f"{name}: {module} is not installed", file=sys.stderr)
            continue
        if module == "pynndescent":
            run(x[:1000])  # compiles, which is not counted
        began = time.process_time()
        found = run(x)
        spent = time.process_time() - began
        figures[name] = {"seconds": round(spent, 1), "recall": round(recall(found, true, rows), 4)}
        if module is not None:
            packages = PACKAGES[module]
            figures[name]["megabytes"] = round(megabytes(packages))
            figures[name]["version"] = version(packages[0])
        print(name, figures[name], flush=True)
        record.write("neighbours", config, figures)


if __name__ == "__main__":
    main()
