"""What the paper claims of cost, measured in one run: results/paper/claims.json.

    python benchmarks/paper/claims.py
    python benchmarks/paper/claims.py ssc-cae dsc-net

The 10,000 test images of MNIST from pixels to clusters by ours and by affinity methods, each in a
process of its own, so that its peak of memory is its own. SSC, LRR and KSSC work on the latents of
one CAE, whose training is measured once and counted for each of them. Beside that: the memory of an
affinity of 70,000 samples (computed) and of our fit to as many images (from the runs of
`python -m kscn_paper run kscn-s mnist`), and the parameters of both networks (counted).
`python -m kscn_paper tables` shows it all as a table. With names, only these are measured again.
Run alone on the machine: about 70 minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kscn import data, metrics
from kscn.nn import ConvAutoencoder, DenseAutoencoder
from kscn_paper import environment, methods, rivals, runs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `record`
import record

OURS = "kscn-s"
ON_LATENTS = ("ssc-cae", "lrr-cae", "kssc-cae")
NAMES = (OURS, *ON_LATENTS, "dsc-net")
NETWORK = "the network of ssc-cae, lrr-cae, kssc-cae"
LARGE = 70_000
SET, SHAPE, CLUSTERS = "mnist-test", (28, 28), 10
PAPER = record.RESULTS / "paper"


def estimator(name: str, cache: str) -> Any:
    """A method with default settings; those on latents take the network that is in `cache`."""
    if name == OURS:
        return methods.make(name, CLUSTERS, dataset=SET, random_state=0)
    own = {"cache": cache} if name in (*ON_LATENTS, "cae-km") else {}
    return rivals.make(name, CLUSTERS, random_state=0, **own)


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


def in_process(name: str, *arguments: str) -> dict[str, Any]:
    """What `claims.py --one NAME ...` prints last, from a process of its own."""
    command = [sys.executable, __file__, "--one", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def end_to_end(names: list[str], samples: int, known: dict[str, Any]) -> Any:
    """Every method in its own process; yields what is known after each."""
    with tempfile.TemporaryDirectory() as cache:
        network = None
        if {*names} & {*ON_LATENTS}:
            network = in_process(NETWORK, cache, str(samples))
            known = {**known, "network": network}
        for name in names:
            found = in_process(name, cache, str(samples))
            if name in ON_LATENTS and network is not None:
                found["own_seconds"] = found["seconds"]
                found["seconds"] += network["seconds"]
                found["peak_mb"] = max(found["peak_mb"], network["peak_mb"])
            known = {**known, "methods": {**known.get("methods", {}), name: found}}
            print(name, json.dumps(found), flush=True)
            yield known


def at_scale() -> dict[str, Any]:
    """The largest peak of our fits to all 70,000 images."""
    peaks = [
        run["peak_memory_mb"]
        for run in runs.read(PAPER / runs.FILE)
        if (run["config"]["dataset"], run["config"]["preset"]) == ("mnist", "tuned")
        and run["config"]["method"] == OURS
    ]
    return {"samples": LARGE, "peak_mb": max(peaks)}


def parameters(network: Any) -> int:
    """Numbers that a network learns."""
    return sum(weights.numel() for weights in network.parameters())


def main(arguments: list[str]) -> None:
    """Measure, and write after every method."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=PAPER)
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
