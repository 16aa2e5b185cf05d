"""Whether the order of the rows changes what `KSCNPlus` finds: results/robustness.json.

    python benchmarks/robustness/row_order.py [DATA] [--each 60]

The same samples as they are, sorted by class, with the classes in turn (0, 1, ..., 9, 0, 1, ...)
and shuffled, with default settings and the same seed. Labels order the rows and score, nothing
else. For every order the accuracy, and for every two of them the share of samples with equal
labels, clusters being matched; both should be 0.98 on MNIST's test images, the default.
"""

from __future__ import annotations

import argparse
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kscn import KSCNPlus, data, metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `record`
import record


def orders(labels: NDArray) -> dict[str, NDArray]:
    """The rows of every order; classes that are larger than others are alone at the end."""
    turn = np.empty(len(labels), dtype=int)
    for label in np.unique(labels):
        turn[labels == label] = np.arange((labels == label).sum())
    return {
        "as they are": np.arange(len(labels)),
        "sorted": np.argsort(labels, kind="stable"),
        "interleaved": np.lexsort((labels, turn)),
        "shuffled": np.random.default_rng(0).permutation(len(labels)),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="?", default="mnist-test")
    parser.add_argument("--each", type=int, help="samples of every class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="write nothing to results/")
    options = parser.parse_args(arguments)
    loaded = data.load(options.data)
    samples, labels = np.asarray(loaded.samples), np.asarray(loaded.labels)
    kept = [np.flatnonzero(labels == label)[: options.each] for label in np.unique(labels)]
    rows = np.sort(np.concatenate(kept))
    samples, labels = samples[rows], labels[rows]
    found: dict[str, NDArray] = {}
    runs: dict[str, dict[str, float]] = {}
    for order, places in orders(labels).items():
        model = KSCNPlus(len(kept), random_state=options.seed).fit(samples[places])
        found[order] = np.empty_like(model.labels_)
        found[order][places] = model.labels_  # by sample again
        runs[order] = metrics.scores(labels, found[order])
        print(order, runs[order], flush=True)
    equal = {
        f"{one}, {other}": metrics.clustering_accuracy(found[one], found[other])
        for one, other in combinations(found, 2)
    }
    print(equal)
    if not options.dry:
        config = {"set": options.data, "samples": len(labels), "seed": options.seed}
        record.write("robustness", config, {"runs": runs, "equal": equal}, entry="row order")


if __name__ == "__main__":
    main()
