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

from kscn import data, metrics
from kscn.features import PCAFeatures, ScatteringFeatures
from kscn_paper import rivals as baselines
from kscn_paper.environment import Elsewhere

COMPONENTS = 150
STARTS = 10
# What the script of its authors for these features has, as far as ours has the same.
AUTHORS = {"subspace_dim": 30, "penalty": 0.5, "init": "k-means"}
# What is done to the components.
SPACES: dict[str, dict[str, bool]] = {
    "components": {},
    "whitened": {"whiten": True, "unit_norm": False},
    "whitened, unit norm": {"whiten": True},
}
K_FSC = partial(baselines.make, "k-fsc")
# The space of each row, and what clusters it.
KINDS: dict[str, tuple[str, Callable[..., Any]]] = {
    **{space: (space, KMeans) for space in SPACES},
    "k-fsc": ("whitened", K_FSC),
    "k-fsc, authors": ("whitened", partial(K_FSC, **AUTHORS)),
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
    spaces = {
        space: PCAFeatures(COMPONENTS, **settings).fit_transform(coefficients)
        for space, settings in SPACES.items()
    }
    for kind, (space, method) in KINDS.items():
        features = np.asarray(spaces[space], dtype=np.float32)
        found[kind] = {}
        for seed in range(seeds):
            clusters = method(k, n_init=STARTS, random_state=seed).fit_predict(features)
            found[kind][str(seed)] = record.percent(metrics.scores(labels, clusters))
    found["seconds"] = round(time.perf_counter() - began, 1)
    found["busy_elsewhere"] = elsewhere.busy()
    return found


if __name__ == "__main__":
    main()
