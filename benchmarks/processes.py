"""The same fits in one process and in two: what they score, results/processes.json.

    python benchmarks/processes.py [DATA] [--seeds 3] [--processes 2] [--methods kscn-s kscn-g]
    python benchmarks/processes.py --whole --seeds 10
    python benchmarks/processes.py --whole --classes 5

kSCN-S and kSCN-G with the preset `tuned`, as the command line runs them; labels only score. Every
process has one thread. Mini-batches are drawn and shared out differently, so runs of one seed are
not equal number by number; they should be equally good.

Every seed is fitted from nothing in one process and in several, and once more from the same start:
a fit in one process is stopped when its network is pretrained and its subspaces are found, and two
copies of it are resumed, one by one process and one by several. The first comparison includes how
much two starts differ, the second is about the training alone. `--whole` is the first one only, for
more seeds, in results/processes_whole.json. `--classes 5` leaves the samples of the first five
classes: an easier set, on which starts hardly differ, so that a few seeds can tell small
differences from chance.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import record

from kscn import metrics
from kscn.data import load
from kscn.runs.directory import HISTORY, UNFINISHED, read_run

STOPPED = 128 + signal.SIGTERM


def main() -> None:
    """Fit every method with every seed, in one process and in several."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="?", default="digits")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=["kscn-s", "kscn-g"])
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--classes", type=int)
    options = parser.parse_args()
    counts = (1, options.processes)
    figures: dict[str, dict[str, object]] = {}
    ways = ["from nothing"] if options.whole else ["from nothing", "from the same start"]
    name = "processes_whole" if options.whole else "processes"
    kept, classes = samples(options.data, options.classes)
    if options.classes:
        name = f"{name}_{options.classes}"
    k = str(len(np.unique(classes)))
    for method in options.methods:
        found = {way: {str(count): [] for count in counts} for way in ways}
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                begun = Path(folder) / "begun"
                given = options.data
                if options.classes:
                    given = str(Path(folder) / "samples.npy")
                    np.save(given, kept)
                fit = ["fit", given, "-k", k, "--method", method, "--seed", str(seed)]
                if not options.whole:
                    begin(begun, [*fit, "-o", str(begun)])
                for count in counts:
                    run = Path(folder) / f"whole-{count}"
                    finish([*fit, "-o", str(run)], count)
                    found[ways[0]][str(count)].append(score(run, classes))
                    if options.whole:
                        continue
                    copy = Path(folder) / f"copy-{count}"
                    shutil.copytree(begun, copy)
                    finish(["fit", "--resume", str(copy)], count)
                    found[ways[1]][str(count)].append(score(copy, classes))
            print(method, seed, found, flush=True)
            figures[method] = {
                way: {
                    "acc": acc,
                    "mean": each(statistics.mean, acc),
                    "sd": each(statistics.pstdev, acc),
                }
                for way, acc in found.items()
            }
            config = {"data": options.data, "classes": int(k), "samples": len(classes)}
            config |= {"seeds": options.seeds, "load": os.getloadavg()}
            record.write(name, config, figures)


def samples(data: str, classes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Samples and their classes, of the first so many classes if a number is given."""
    found = load(data)
    of = np.asarray(found.labels)
    rows = np.isin(of, np.unique(of)[:classes])
    return np.asarray(found.samples)[rows], of[rows]


def begin(run: Path, arguments: list[str]) -> None:
    """A fit in one process, stopped when training begins."""
    process = subprocess.Popen(command(arguments, 1), env=one_thread(), stdout=subprocess.DEVNULL)
    history = run / UNFINISHED / HISTORY
    while not (history.exists() and '"stage": "start"' in history.read_text()):
        if process.poll() is not None:
            sys.exit(f"the fit ended with {process.returncode} before it could be stopped")
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    if process.wait() != STOPPED:
        sys.exit(f"the fit ended with {process.returncode} instead of being stopped")


def finish(arguments: list[str], processes: int) -> None:
    done = subprocess.run(
        command(arguments, processes), env=one_thread(), capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stderr)


def command(arguments: list[str], processes: int) -> list[str]:
    launch = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    return [sys.executable, *(launch if processes > 1 else []), "-m", "kscn", *arguments]


def one_thread() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def score(run: Path, classes: np.ndarray) -> float:
    """ACC of a run in percent."""
    return round(100 * metrics.clustering_accuracy(classes, read_run(run).labels()), 2)


def each(figure: Callable[[list[float]], float], found: dict[str, list[float]]) -> dict[str, float]:
    """A figure of the scores of every number of processes."""
    return {count: round(figure(rows), 2) for count, rows in found.items()}


if __name__ == "__main__":
    main()
