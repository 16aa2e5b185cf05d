"""UMAP + k-means and UMAP + HDBSCAN for panel.py, run by the Python of an environment of its own.

    python umap_rivals.py FOLDER SEED K [K ...]

That environment has umap-learn and hdbscan, not kscn. FOLDER holds the samples of the problems as
0.npy, 1.npy, ..., whose numbers of clusters follow; labels are written there as umap-k-means-0.npy
and umap-hdbscan-0.npy. Points that HDBSCAN calls noise get the cluster of the nearest point that
has one, since every point is scored.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import hdbscan
import numpy as np
import umap
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

DIMENSIONS, NEIGHBOURS = 10, 30
# Of HDBSCAN's clusters; 500 for the 70,000 images of MNIST, as in the manual of UMAP.
SMALLEST, SHARE = 5, 140


def embedded(x: np.ndarray, seed: int, epochs: int | None = None) -> np.ndarray:
    model = umap.UMAP(
        n_components=DIMENSIONS,
        n_neighbors=min(NEIGHBOURS, len(x) - 1),
        min_dist=0.0,
        random_state=seed,
        n_epochs=epochs,
    )
    return np.asarray(model.fit_transform(x))


def by_density(z: np.ndarray) -> np.ndarray:
    """Clusters of HDBSCAN with all noise assigned."""
    size = max(SMALLEST, len(z) // SHARE)
    labels = hdbscan.HDBSCAN(min_cluster_size=size, min_samples=min(10, size)).fit_predict(z)
    noise = labels < 0
    if noise.all():
        return np.zeros_like(labels)
    if noise.any():
        nearest = NearestNeighbors(n_neighbors=1).fit(z[~noise])
        labels[noise] = labels[~noise][nearest.kneighbors(z[noise])[1][:, 0]]
    return labels


def main(folder: Path, seed: int, ks: list[int]) -> None:
    """Cluster all problems; seconds of each method are sums over them."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    # Numba compiles both kinds of search that UMAP has: all distances below 4,096, an index above.
    for rows in (200, 4200):
        by_density(embedded(rng.standard_normal((rows, 5)).astype(np.float32), 0, 11))
    seconds = {"umap-k-means": 0.0, "umap-hdbscan": 0.0}
    for number, k in enumerate(ks):
        times = [time.perf_counter()]
        z = embedded(np.load(folder / f"{number}.npy"), seed)
        times.append(time.perf_counter())
        labels = [KMeans(k, n_init=10, random_state=seed).fit_predict(z)]
        times.append(time.perf_counter())
        labels.append(by_density(z))
        times.append(time.perf_counter())
        embedding, *own = np.diff(times)
        for method, found, spent in zip(seconds, labels, own, strict=True):
            np.save(folder / f"{method}-{number}.npy", found)
            seconds[method] += embedding + spent
    packages = ("umap-learn", "hdbscan", "numba", "numpy", "scikit-learn")
    versions = {package: version(package) for package in packages}
    print(json.dumps({"seconds": seconds, "versions": versions}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [int(k) for k in sys.argv[3:]])
