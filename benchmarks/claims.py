"""What the paper claims of cost, measured in one run: results/claims.json.

    python benchmarks/claims.py
    python benchmarks/claims.py ssc-cae dsc-net

The 10,000 test images of MNIST from pixels to clusters by ours and by affinity methods, each in a
process of its own, so that its peak of memory is its own. SSC, LRR and KSSC work on the latents of
one CAE, whose training is measured once and counted for each of them. Beside that: the memory of an
affinity of 70,000 samples (computed) and of our fit to as many images (from the runs of
`kscn reproduce mnist --method kscn-s`), and the parameters of both networks (counted).
`kscn reproduce all --no-run` shows it all as a table. With names, only these are measured again.
Run alone on the machine: about 70 minutes on one core. `affinity.py` has the methods on points.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import record
from affinity import in_process

from kscn import data, metrics
from kscn.nn import ConvAutoencoder, DenseAutoencoder
from kscn_paper import environment, methods
from kscn_paper import rivals as baselines

OURS = "kscn-s"
ON_LATENTS = ("ssc-cae", "lrr-cae", "kssc-cae")
NAMES = (OURS, *ON_LATENTS, "dsc-net")
NETWORK = "the network of ssc-cae, lrr-cae, kssc-cae"
LARGE = 70_000
SET, SHAPE, CLUSTERS = "mnist-test", (28, 28), 10


def estimator(name: str, cache: str) -> Any:
    """A method with default settings; those on latents take the network that is in `cache`."""
    if name == OURS:
        settings = {"preset": "tuned", "dataset": SET, "shape": SHAPE, "random_state": 0}
        return methods.configured(name, CLUSTERS, **settings)
    if name in (*ON_LATENTS, "cae-km"):
        return baselines.make(name, CLUSTERS, random_state=0, cache=cache)
    return baselines.make(name, CLUSTERS, random_state=0)


def measure(name: str, cache: str, samples: str) -> dict[str, Any]:
    """Fit one method in this process to the first so many images."""
    images = data.load(SET)
    x, y = images.samples[: int(samples)], images.labels[: int(samples)]
    environment.reset_peak_memory()
    elsewhere, began = environment.Elsewhere(), time.perf_counter()
    model = estimator("cae-km" if name == NETWORK else name, cache).fit(x)
    seconds = time.perf_counter() - began
    if name == NETWORK:  # without the k-means after it
        seconds = max(r["seconds"] for r in model.history_ if r["stage"].startswith("pretrain"))
    return {
        "seconds": seconds,
        "peak_mb": environment.peak_memory_mb(),
        "busy_elsewhere": elsewhere.busy(),
        "commit": record.COMMIT,
        **metrics.scores(y, model.labels_),
    }


def end_to_end(names: list[str], samples: int, known: dict[str, Any]) -> Any:
    """Every method in its own process; yields what is known after each."""
    with tempfile.TemporaryDirectory() as cache:
        network = None
        if {*names} & {*ON_LATENTS}:
            network = in_process(NETWORK, cache, str(samples), script=__file__)
            known = {**known, "network": network}
        for name in names:
            found = in_process(name, cache, str(samples), script=__file__)
            if name in ON_LATENTS and network is not None:
                found["own_seconds"] = found["seconds"]
                found["seconds"] += network["seconds"]
                found["peak_mb"] = max(found["peak_mb"], network["peak_mb"])
            known = {**known, "methods": {**known.get("methods", {}), name: found}}
            print(name, json.dumps(found), flush=True)
            yield known


def at_scale() -> dict[str, Any]:
    """The largest peak of our fits to all 70,000 images that are on disk."""
    runs = sorted((record.RESULTS / "reproduce").glob("mnist_kscn-s_tuned_seed*.json"))
    peaks = {path.name: json.loads(path.read_text())["peak_memory_mb"] for path in runs}
    name = max(peaks, key=lambda path: peaks[path])
    return {"samples": LARGE, "peak_mb": peaks[name], "from": f"reproduce/{name}"}


def parameters(network: Any) -> int:
    """Numbers that a network learns."""
    return sum(weights.numel() for weights in network.parameters())


def main(arguments: list[str]) -> None:
    """Measure, and write after every method."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=record.RESULTS)
    options = parser.parse_args(arguments)
    old = record.figures("claims", options.out) if options.names else {}
    figures = {
        "affinity": {"samples": LARGE, "gb": 8 * LARGE**2 / 1e9},
        "ours": at_scale(),
        "parameters": {
            "cae": parameters(ConvAutoencoder((1, *SHAPE))),
            "sae": parameters(DenseAutoencoder(SHAPE[0] * SHAPE[1])),
        },
    }
    names = options.names or list(NAMES)
    config = {"dataset": SET, "samples": options.samples, "seed": 0}
    for found in end_to_end(names, options.samples, old.get("end_to_end", {})):
        record.write("claims", config, {**figures, "end_to_end": found}, options.out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(*sys.argv[2:5])))
    else:
        main(sys.argv[1:])
