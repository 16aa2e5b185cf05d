"""What `KSCNPlus` reaches and how long it takes: results/frontier_SET.json.

    python benchmarks/frontier.py mnist fashion-mnist --seeds 5
    python benchmarks/frontier.py digits coil20 eyaleb mnist-test fashion-mnist-test --seeds 3
    python benchmarks/frontier.py iris wine breast-cancer digits-vectors --seeds 3
    python benchmarks/frontier.py mnist --held-out --seeds 1

Default settings, whatever the set; labels only score. Beside each set stand k-means on its pixels
and on the features that seed 0 has chosen: what every stage adds can be read off. Seeds that the
file has already are not run again. `--held-out` fits on 60,000 images of MNIST and labels the other
10,000. iris, wine, breast-cancer and
digits-vectors are vectors that come with scikit-learn. The other sets but digits need KSCN_DATA;
coil20 and eyaleb are coil20_32x32.npz and eyaleb_48x42.npz in it, with the arrays X
and y.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import record
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from kscn import KSCNPlus, data, metrics

VECTORS = {
    "iris": load_iris,
    "wine": load_wine,
    "breast-cancer": load_breast_cancer,
    "digits-vectors": load_digits,
}
FILES = {"coil20": "coil20_32x32.npz", "eyaleb": "eyaleb_48x42.npz"}
STAGES = {
    "search": "search",
    "settle": "start",
    "start": "start",
    "grow": "start",
    "fit": "refinement",
}


def main() -> None:
    """Run every set and seed that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    kind = "held-out" if options.held_out else "frontier"
    run = {"held-out": held_out, "frontier": whole}[kind]
    for name in options.sets:
        x, y = samples(name)
        k = len(np.unique(y))
        figures = record.figures(f"{kind}_{name}")
        if kind == "frontier" and "k-means on pixels" not in figures:
            figures["k-means on pixels"] = plain(x, y, k)
        for seed in range(options.seeds):
            rows = figures.setdefault("seeds", {})
            if str(seed) in rows:
                continue
            rows[str(seed)] = run(x, y, k, seed)
            print(name, seed, json.dumps(rows[str(seed)]), flush=True)
            figures["mean"] = mean(list(rows.values()))
            config = {"n": len(x), "k": k, "load": os.getloadavg()}
            record.write(f"{kind}_{name}", config, figures)
        print(name, json.dumps(figures["mean"]))


def samples(name: str) -> tuple[Any, Any]:
    """Images and classes of a set."""
    if name in VECTORS:
        return VECTORS[name](return_X_y=True)
    if name not in FILES:
        found = data.load(name)
        return np.asarray(found.samples), np.asarray(found.labels)
    arrays = np.load(Path(os.environ["KSCN_DATA"]) / FILES[name])
    return arrays["X"], arrays["y"]


def plain(x: Any, y: Any, k: int) -> dict[str, Any]:
    """k-means on pixels, the best of 20 by its objective."""
    model = KMeans(k, n_init=20, random_state=0).fit(x.reshape(len(x), -1).astype(np.float32))
    return record.percent(metrics.scores(y, model.labels_))


def whole(x: Any, y: Any, k: int, seed: int) -> dict[str, Any]:
    """One fit: scores after every stage, and seconds until its end."""
    model, seconds = fitted(x, k, seed)
    beside = {"k-means on features": on_features(model, x, y, k)} if seed == 0 else {}
    until = {
        STAGES[r["stage"]]: round(r["seconds"], 1) for r in model.history_ if r["stage"] in STAGES
    }
    return beside | {
        "start": record.percent(metrics.scores(y, model.start_labels_)),
        "final": record.percent(metrics.scores(y, model.labels_)),
        "seconds": round(seconds, 1),
        "seconds until the end of": until,
        "chosen": model.chosen_,
        "confidence": round(model.confidence_, 4),
        "epochs": model.n_iter_,
    }


def on_features(model: KSCNPlus, x: Any, y: Any, k: int) -> dict[str, float]:
    """k-means on the features that a fit has chosen."""
    features = model.features_.transform(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(k, n_init=10, random_state=0).fit(features)
    return record.percent(metrics.scores(y, means.labels_))


def held_out(x: Any, y: Any, k: int, seed: int) -> dict[str, Any]:
    """Fit without the last 10,000, and label those."""
    fit, rest = slice(0, len(x) - 10_000), slice(len(x) - 10_000, None)
    model, seconds = fitted(x[fit], k, seed)
    model.predict(x[rest][:256])
    began = time.perf_counter()
    labels = model.predict(x[rest])
    predicting = time.perf_counter() - began
    # One renaming for both: the held-out part must not choose its own.
    renamed = metrics.align_labels(
        np.concatenate([y[fit], y[rest]]), np.concatenate([model.labels_, labels])
    )
    right = renamed == y
    return {
        "training": round(100 * float(right[fit].mean()), 2),
        "held out": round(100 * float(right[rest].mean()), 2),
        "images_per_second": round(10_000 / predicting),
        "seconds": round(seconds, 1),
    }


def fitted(x: Any, k: int, seed: int) -> tuple[KSCNPlus, float]:
    """A fit with default settings, and its time."""
    began = time.perf_counter()
    model = KSCNPlus(k, random_state=seed).fit(x)
    return model, time.perf_counter() - began


def mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, standard deviation and least over seeds of every number in the rows."""
    out: dict[str, Any] = {}
    for name, value in rows[0].items():
        if isinstance(value, dict):
            out[name] = mean([row.get(name, {}) | {} for row in rows if name in row])
        elif isinstance(value, (int, float)):
            values = [row[name] for row in rows if name in row]
            out[name] = {
                "mean": round(float(np.mean(values)), 2),
                "sd": round(float(np.std(values)), 2),
                "least": min(values),
            }
    return out


if __name__ == "__main__":
    main()
