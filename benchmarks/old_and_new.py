"""Whether a change of the code cost speed: CPU seconds of two trees, results/old_and_new.json.

    git worktree add /somewhere/old REVISION
    KSCN_DATA=DIR python benchmarks/old_and_new.py /somewhere/old
    KSCN_DATA=DIR python benchmarks/old_and_new.py /somewhere/old --only scattering --rounds 9

Every task runs in a process of its own, once with the code of the other tree and once with this
one, in turn, several rounds; the first fit of a process is not counted, the fastest of the next
three is. Seconds are those of the processor, of one thread: whoever else is on the machine takes
time from the clock first. The ratio is that of the fastest rounds: what is slower than that was
disturbed. Run it alone on the machine all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import record

ROUNDS = 5
HERE = Path(__file__).resolve()


def linear() -> Callable[[], object]:
    """Iterations of k-subspaces on pixels."""
    from kscn import KSubspaces, data

    x = np.asarray(data.load("mnist-test").samples).reshape(10_000, -1).astype(np.float32)
    settings = {"subspace_dim": 5, "init": "k-means", "n_init": 1, "max_iter": 10, "tol": 0.0}
    return lambda: KSubspaces(10, random_state=0, **settings).fit(x)


def search() -> Callable[[], object]:
    """The default of `KSubspaces` on a few thousand vectors."""
    from kscn import KSubspaces

    rng = np.random.default_rng(0)
    x = rng.standard_normal((5685, 30)) + 2 * rng.standard_normal((11, 30))[np.arange(5685) % 11]
    return lambda: KSubspaces(11, random_state=0).fit(x.astype(np.float32))


def deep() -> Callable[[], object]:
    """Epochs of pretraining and of the alternation."""
    from kscn import KSCN, data

    x = np.asarray(data.load("mnist-test").samples)[:6000]
    settings = {"pretrain_epochs": 2, "epochs": 2, "n_init": 1, "init": "k-means"}
    return lambda: KSCN.from_settings(10, random_state=0, subspace_dim=5, **settings).fit(x)


def scattering() -> Callable[[], object]:
    """Scattering coefficients of images."""
    from kscn import data
    from kscn.features import ScatteringFeatures

    x = np.asarray(data.load("mnist-test").samples)[:4000]
    features = ScatteringFeatures().fit(x)
    return lambda: features.transform(x)


def best() -> Callable[[], object]:
    """The choice of `KSCNPlus` on digits as vectors."""
    from kscn import KSCNPlus, data

    x = np.asarray(data.load("digits").samples).reshape(1797, -1)
    return lambda: KSCNPlus(10, random_state=0).fit(x)


TASKS = {task.__name__: task for task in (linear, search, deep, scattering, best)}


def seconds(task: str) -> float:
    """Of the fastest of three runs, after one that is not counted."""
    run = TASKS[task]()
    run()

    def once() -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    return min(once() for _ in range(3))


def measured(tree: Path, task: str) -> float:
    """The same in a process with the code of a tree."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE), "--task", task]
    return float(subprocess.run(command, env=environment, stdout=-1, check=True).stdout)


def main() -> None:
    """Measure all tasks, or print the seconds of one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path, nargs="?", help="a checkout of the code before")
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--only", choices=TASKS, nargs="+", default=list(TASKS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if options.task:
        print(seconds(options.task))
        return
    trees = {"old": options.old.resolve(), "new": HERE.parents[1]}
    of = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=trees["old"], stdout=-1, text=True, check=True
    )
    config = {"old": of.stdout.strip()}
    path = record.RESULTS / "old_and_new.json"
    figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    for task in options.only:
        rounds = []
        for number in range(options.rounds):
            order = list(trees.items())[:: -1 if number % 2 else 1]
            rounds.append({name: measured(tree, task) for name, tree in order})
        fastest = {name: min(one[name] for one in rounds) for name in trees}
        figures[task] = {
            "rounds": len(rounds),
            "new over old": round(fastest["new"] / fastest["old"], 3),
            "seconds": [{name: round(value, 3) for name, value in one.items()} for one in rounds],
        }
        print(task, json.dumps(figures[task]), flush=True)
        record.write("old_and_new", config, figures)


if __name__ == "__main__":
    main()
