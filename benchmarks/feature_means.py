"""k-means and k-FSC on scattering features: results/feature_means.json.

    python benchmarks/feature_means.py mnist-test fashion-mnist-test --seeds 3
    python benchmarks/feature_means.py mnist fashion-mnist --seeds 3

The features are those that the field clusters: two orders of scattering coefficients, each map
divided by its maximum, 150 principal components. `components` is k-means on these at unit norm;
`whitened` on the same components divided by their standard deviations, which is what k-FSC's
features are (its paper has k-means at 95.7 and 65.5 on them); `whitened, unit norm` on these at
unit norm, which is what k-subspaces likes and k-means does not; `k-fsc` is that method, with its
defaults and with the settings of its authors (`AUTHORS`), on the whitened components, because its
published figures are on these and not on pixels.
Of 10 starts per seed the lowest objective counts; labels only score. About 10 minutes per set of
70,000 on one core. Needs KSCN_DATA; sets that the file has already are measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import record
from sklearn.cluster import KMeans

from kscn import baselines, data, metrics
from kscn.experiments.environment import Elsewhere
from kscn.features import PCAFeatures, ScatteringFeatures

COMPONENTS = 150
STARTS = 10


def k_means(k: int, seed: int) -> Any:
    """Not fitted."""
    return KMeans(k, n_init=STARTS, random_state=seed)


def k_fsc(k: int, seed: int, **settings: Any) -> Any:
    """Not fitted."""
    return baselines.make("k-fsc", k, n_init=STARTS, random_state=seed, **settings)


# What the script of its authors for these features has, as far as ours has the same.
AUTHORS = {"subspace_dim": 30, "penalty": 0.5, "init": "k-means"}


# What is done to the components, and what clusters them.
KINDS: dict[str, tuple[dict[str, bool], Callable[..., Any]]] = {
    "components": ({}, k_means),
    "whitened": ({"whiten": True, "unit_norm": False}, k_means),
    "whitened, unit norm": ({"whiten": True}, k_means),
    "k-fsc": ({"whiten": True, "unit_norm": False}, k_fsc),
    "k-fsc, authors": ({"whiten": True, "unit_norm": False}, partial(k_fsc, **AUTHORS)),
}


def main() -> None:
    """Measure every set that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    figures = record.figures("feature_means")
    for name in options.sets:
        figures[name] = measured(name, options.seeds)
        print(name, json.dumps(figures[name]), flush=True)
        config = {"components": COMPONENTS, "starts": STARTS, "seeds": options.seeds}
        record.write("feature_means", config, figures)


def measured(name: str, seeds: int) -> dict[str, Any]:
    """Scores of every kind of features, by seed."""
    loaded = data.load(name)
    labels = np.asarray(loaded.labels)
    k = len(np.unique(labels))
    began, elsewhere = time.perf_counter(), Elsewhere()
    coefficients = ScatteringFeatures().fit_transform(np.asarray(loaded.samples))
    found: dict[str, Any] = {"k": k, "samples": len(labels), "commit": record.COMMIT}
    for kind, (settings, method) in KINDS.items():
        features = PCAFeatures(COMPONENTS, **settings).fit_transform(coefficients)
        features = np.asarray(features, dtype=np.float32)
        found[kind] = {
            str(seed): record.percent(metrics.scores(labels, method(k, seed).fit_predict(features)))
            for seed in range(seeds)
        }
    found["seconds"] = round(time.perf_counter() - began, 1)
    found["busy_elsewhere"] = elsewhere.busy()
    return found


if __name__ == "__main__":
    main()
