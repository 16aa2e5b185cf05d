"""k-means and k-FSC on scattering features: rows of the tables, in results/paper/runs.jsonl.

    python benchmarks/paper/feature_means.py mnist-test fashion-mnist-test --seeds 3
    python benchmarks/paper/feature_means.py mnist fashion-mnist --seeds 3

The features are those that the field clusters: two orders of scattering coefficients, each map
divided by its maximum, 150 principal components. "k-means on scattering" is k-means on these at
unit norm; "on whitened scattering" on the same components divided by their standard deviations,
which is what k-FSC's features are (its paper has k-means at 95.7 and 65.5 on them); "unit norm" on
these at unit norm, which is what k-subspaces likes and k-means does not. k-FSC is on the whitened
components, because its published figures are on these and not on pixels. Of 10 starts per seed the
lowest objective counts; labels only score. About 10 minutes per set of 70,000 on one core. A run
that is there is not made again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans

from kscn import data, metrics
from kscn.features import Components, scattering_steps
from kscn.nn.rows import through
from kscn.runtime.lazy import Lazy
from kscn_paper import rivals, runs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `record`
import record

STARTS = 10
# What the script of its authors for these features has, as far as ours has the same.
AUTHORS = {"subspace_dim": 30, "penalty": 0.5, "init": "k-means"}
WHITENED: dict[str, Any] = {"whiten": True, "unit_norm": False}
K_FSC = partial(rivals.make, "k-fsc")
# Row -> what is done to the components, what clusters them, and its own parameters.
ROWS: dict[str, tuple[dict[str, Any], Callable[..., Any], dict[str, Any]]] = {
    "k-means on scattering": ({}, KMeans, {}),
    "k-means on whitened scattering": (WHITENED, KMeans, {}),
    "k-means on whitened scattering, unit norm": ({"whiten": True}, KMeans, {}),
    "k-fsc on whitened scattering": (WHITENED, K_FSC, {}),
    "k-fsc on whitened scattering, settings of its authors": (WHITENED, K_FSC, AUTHORS),
}


def main(arguments: list[str] | None = None) -> None:
    """Measure every row of the sets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--components", type=int, default=150)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "paper")
    options = parser.parse_args(arguments)
    path = options.out / runs.FILE
    known = [(r["config"]["dataset"], r["config"]["method"], r["seed"]) for r in runs.read(path)]
    for name in options.sets:
        loaded = data.load(name)
        labels = np.asarray(loaded.labels)
        k = len(np.unique(labels))
        scattered = Lazy(
            loaded.samples, scattering_steps(loaded.samples.shape), torch.device("cpu")
        )
        coefficients = torch.from_numpy(np.asarray(scattered))
        for row, (space, method, own) in ROWS.items():
            last = Components.fit(coefficients, options.components, **space)
            features = through([last], coefficients).numpy()
            for seed in range(options.seeds):
                if (name, row, seed) in known:
                    continue
                began = time.perf_counter()
                model = method(k, n_init=STARTS, random_state=seed, **own)
                clusters = model.fit_predict(np.asarray(features, dtype=np.float32))
                parameters = {"n_clusters": k, "n_init": STARTS, **own}
                parameters |= {"components": options.components, "random_state": seed}
                config = {"dataset": name, "samples": len(labels), "method": row, "preset": None}
                run = {
                    "config": {**config, "parameters": parameters},
                    "seed": seed,
                    "scores": metrics.scores(labels, clusters),
                    "seconds": time.perf_counter() - began,
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "commit": record.COMMIT,
                    "from": "`python benchmarks/paper/feature_means.py`",
                }
                runs.add(path, run)
                print(name, row, seed, run["scores"], flush=True)


if __name__ == "__main__":
    main()
