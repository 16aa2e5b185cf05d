"""UMAP + k-means and UMAP + HDBSCAN for panel.py, run by the Python of an environment of its own.

That environment has umap-learn and hdbscan, not kscn. It is started once, because numba compiles
for half a minute: after one warm-up it answers requests, a line of JSON each, with such lines.

    {"folder": PATH, "ks": [10, ...], "seed": 0}

`folder` holds the samples as 0.npy, 1.npy, ...; labels are written there as umap-k-means-0.npy and
umap-hdbscan-0.npy. Points that HDBSCAN calls noise get the cluster of the nearest point that has
one, since every point is scored.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hdbscan
import numpy as np
import umap
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

DIMENSIONS, NEIGHBOURS = 10, 30
# Of HDBSCAN's clusters; 500 for the 70,000 images of MNIST, as in the manual of UMAP.
SMALLEST, SHARE = 5, 140


def embedded(x: np.ndarray, seed: int | None, epochs: int | None = None) -> np.ndarray:
    """UMAP's coordinates. With a seed it works on one core, without on all."""
    model = umap.UMAP(
        n_components=DIMENSIONS,
        n_neighbors=min(NEIGHBOURS, len(x) - 1),
        min_dist=0.0,
        random_state=seed,
        n_epochs=epochs,
    )
    return np.asarray(model.fit_transform(x))


def by_density(z: np.ndarray) -> tuple[np.ndarray, float]:
    """Clusters of HDBSCAN with all noise assigned, and the share that was noise."""
    smallest = max(SMALLEST, len(z) // SHARE)
    labels = hdbscan.HDBSCAN(min_cluster_size=smallest, min_samples=min(10, smallest)).fit_predict(
        z
    )
    noise = labels < 0
    if noise.all():
        return np.zeros_like(labels), 1.0
    nearest = NearestNeighbors(n_neighbors=1).fit(z[~noise])
    if noise.any():
        labels[noise] = labels[~noise][nearest.kneighbors(z[noise])[1][:, 0]]
    return labels, float(noise.mean())


def answered(folder: Path, ks: list[int], seed: int) -> dict[str, Any]:
    """Cluster all problems; seconds are sums over them."""
    embedding = unseeded = means = density = 0.0
    noise, clusters = [], []
    for number, k in enumerate(ks):
        x = np.load(folder / f"{number}.npy")
        begin = time.perf_counter()
        z = embedded(x, seed)
        embedding += time.perf_counter() - begin
        begin = time.perf_counter()
        labels = KMeans(k, n_init=10, random_state=seed).fit_predict(z)
        means += time.perf_counter() - begin
        np.save(folder / f"umap-k-means-{number}.npy", labels)
        begin = time.perf_counter()
        labels, share = by_density(z)
        density += time.perf_counter() - begin
        np.save(folder / f"umap-hdbscan-{number}.npy", labels)
        noise.append(share)
        clusters.append(len(np.unique(labels)))
        if seed == 0:  # once: what it takes where nobody asks for the same result again
            begin = time.perf_counter()
            embedded(x, None)
            unseeded += time.perf_counter() - begin
    without_seed = {"seconds without a seed": unseeded + means} if seed == 0 else {}
    return {
        "umap-k-means": {"seconds": embedding + means, **without_seed},
        "umap-hdbscan": {
            "seconds": embedding + density,
            "noise": float(np.mean(noise)),
            "clusters": float(np.mean(clusters)),
        },
    }


def main() -> None:
    """Warm up, say so, and answer until there are no more requests."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    # Samples of both kinds of search that UMAP has: all distances below 4,096, an index above.
    for rows in (200, 4200):
        for seed in (0, None):
            by_density(embedded(rng.standard_normal((rows, 5)).astype(np.float32), seed, 11))
    packages = ("umap-learn", "hdbscan", "numba", "numpy", "scikit-learn")
    print(json.dumps({package: version(package) for package in packages}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answered(Path(request.pop("folder")), **request)), flush=True)


if __name__ == "__main__":
    main()
