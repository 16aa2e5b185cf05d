"""The same fits in one process and in two: what they score, results/processes.json.

    python benchmarks/processes.py [DATA] [--seeds 3] [--processes 2]

kSCN-S and kSCN-G with the preset `tuned`, as the command line runs them; labels only score. Every
process has one thread. Mini-batches are drawn and shared out differently, so runs of one seed are
not equal number by number; they should be equally good.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import record

from kscn import metrics
from kscn.cli.rundir import read_run
from kscn.data import load


def main() -> None:
    """Fit every method with every seed, in one process and in several."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="?", default="digits")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    figures: dict[str, dict[str, object]] = {}
    for method in ("kscn-s", "kscn-g"):
        found: dict[str, list[float]] = {}
        for processes in (1, options.processes):
            rows = [fit(options.data, method, seed, processes) for seed in range(options.seeds)]
            found[str(processes)] = rows
            print(method, processes, rows, flush=True)
        means = {key: round(statistics.mean(rows), 2) for key, rows in found.items()}
        figures[method] = {"acc": found, "mean": means}
    config = {"data": options.data, "seeds": options.seeds, "load": os.getloadavg()}
    record.write("processes", config, figures)


def fit(data: str, method: str, seed: int, processes: int) -> float:
    """ACC of a run in percent."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        launch = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
        command = [sys.executable, *(launch if processes > 1 else []), "-m", "kscn"]
        command += [
            "fit",
            data,
            "-k",
            "10",
            "--method",
            method,
            "--seed",
            str(seed),
            "-o",
            str(run),
        ]
        done = subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stderr)
        labels = read_run(run).labels()
    classes = np.asarray(load(data).labels)
    return round(100 * metrics.clustering_accuracy(classes, labels), 2)


if __name__ == "__main__":
    main()
