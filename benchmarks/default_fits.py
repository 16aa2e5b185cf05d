"""Seconds of default fits that users are promised: results/default_fits.json.

    python benchmarks/default_fits.py

`KSubspaces` beside scikit-learn's KMeans (the best of ten starts) on 5,685 x 30 with 11 clusters,
and `KSCNPlus` on 10,000 x 400 with 10: points near subspaces, and round groups. Three seeds each,
after one fit to warm up. Run alone on the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import record
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from kscn import KSCNPlus, KSubspaces, data

SEEDS = range(3)
NARROW = {"n": 5_685, "columns": 30, "k": 11}
WIDE = {"n": 10_000, "columns": 400, "k": 10}
DIM, NOISE, SPREAD = 5, 0.1, 6.0  # of subspaces; of groups around points


def drawn(kind: str, n: int, columns: int, k: int) -> NDArray:
    """Samples of one kind."""
    if kind == "subspaces":
        return data.make_union_of_subspaces(n, k, columns, DIM, noise=NOISE, random_state=0)[0]
    return make_blobs(n, columns, centers=k, cluster_std=SPREAD, random_state=0)[0].astype("f4")


def seconds(fit: Callable[[int], object]) -> list[float]:
    """Of one fit per seed."""
    fit(len(SEEDS))
    found = []
    for seed in SEEDS:
        began = time.perf_counter()
        fit(seed)
        found.append(round(time.perf_counter() - began, 2))
    return found


def main() -> None:
    """Measure all of it."""
    figures: dict[str, Any] = {}
    for kind in ("subspaces", "round groups"):
        x, k = drawn(kind, **NARROW), NARROW["k"]
        ours = seconds(lambda seed, x=x, k=k: KSubspaces(k, random_state=seed).fit(x))
        means = seconds(lambda seed, x=x, k=k: KMeans(k, n_init=10, random_state=seed).fit(x))
        x, k = drawn(kind, **WIDE), WIDE["k"]
        best = seconds(lambda seed, x=x, k=k: KSCNPlus(k, random_state=seed).fit(x))
        figures[kind] = {
            "KSubspaces, 5,685 x 30": ours,
            "KMeans, 5,685 x 30": means,
            "ratio": round(sum(ours) / sum(means), 1),
            "KSCNPlus, 10,000 x 400": best,
        }
        print(kind, figures[kind], flush=True)
    config = {"narrow": NARROW, "wide": WIDE, "dim": DIM, "noise": NOISE, "spread": SPREAD}
    record.write("default_fits", config | {"load": round(os.getloadavg()[0], 1)}, figures)


if __name__ == "__main__":
    main()
