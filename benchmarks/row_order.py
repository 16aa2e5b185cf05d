"""Whether the order of the rows changes what `KSCNPlus` finds: results/row_order.json.

    python benchmarks/row_order.py
    python benchmarks/row_order.py digits --dry
    python benchmarks/row_order.py --each 60 --dry

The same images (MNIST's 10,000 test images, which need KSCN_DATA, or another set by its name) as
they are, sorted by class, with the classes in turn (0, 1, ..., 9, 0, 1, ...) and shuffled, with
default settings and the same seed. Labels order the rows and score, nothing else. For every order
the accuracy, and for every two of them the share of images with equal labels, clusters being
matched. `--each` takes as many images of every class and no more.
"""

from __future__ import annotations

import argparse
import time
from itertools import combinations
from typing import Any

import numpy as np
import record
from numpy.typing import NDArray

from kscn import KSCNPlus, data, metrics

# What the result should reach: accuracy in every order, and equal labels in every two of them.
BARS = {"accuracy": 0.98, "equal": 0.98}
SHUFFLE_SEED = 0


def main() -> None:
    """Fit all orders and compare them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", default="mnist-test")
    parser.add_argument("--each", type=int, help="images of every class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="do not write results/row_order.json")
    options = parser.parse_args()
    images, labels = chosen(options.name, options.each)
    config = {
        "set": options.name,
        "images": len(images),
        "seed": options.seed,
        "shuffle_seed": SHUFFLE_SEED,
        "settings": "default",
        "bars": BARS,
    }
    runs: dict[str, dict[str, Any]] = {}
    found: dict[str, NDArray] = {}
    for order, rows in orders(labels).items():
        model = KSCNPlus(len(np.unique(labels)), random_state=options.seed)
        began = time.perf_counter()
        model.fit(images[rows])
        seconds = time.perf_counter() - began
        found[order] = np.empty_like(model.labels_)
        found[order][rows] = model.labels_  # by image again
        runs[order] = {
            **metrics.scores(labels, found[order]),
            "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
            "confidence": model.confidence_,
            "seconds": seconds,
        }
        print(order, runs[order], flush=True)
        if not options.dry:  # also after each, because a fit takes minutes
            record.write("row_order", config, compared(runs, found))
    print(compared(runs, found)["equal"], flush=True)


def chosen(name: str, each: int | None) -> tuple[NDArray, NDArray]:
    """Images and their classes, `each` of every class where that is given."""
    loaded = data.load(name)
    labels = np.asarray(loaded.labels)
    if each is None:
        return loaded.samples[:], labels
    rows = [np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]
    rows = np.sort(np.concatenate(rows))
    return loaded.samples.take(rows), labels[rows]


def orders(labels: NDArray) -> dict[str, NDArray]:
    """The rows of every order; classes that are larger than others are alone at the end."""
    sorted_rows = np.argsort(labels, kind="stable")
    turn = np.empty(len(labels), dtype=int)
    for label in np.unique(labels):
        turn[labels == label] = np.arange((labels == label).sum())
    return {
        "as they are": np.arange(len(labels)),
        "sorted": sorted_rows,
        "interleaved": np.lexsort((labels, turn)),
        "shuffled": np.random.default_rng(SHUFFLE_SEED).permutation(len(labels)),
    }


def compared(runs: dict[str, dict[str, Any]], found: dict[str, NDArray]) -> dict[str, Any]:
    """All runs, and how far every two of them agree."""
    equal = {
        f"{one}, {other}": metrics.clustering_accuracy(found[one], found[other])
        for one, other in combinations(found, 2)
    }
    return {
        "runs": runs,
        "equal": equal,
        "least_accuracy": min(run["acc"] for run in runs.values()),
        "least_equal": min(equal.values(), default=1.0),
    }


if __name__ == "__main__":
    main()
