"""Speed and memory of fits, as ratios within one run: entries of results/speed.json.

    python benchmarks/speed/fit.py iteration growth      on one quiet machine
    python benchmarks/speed/fit.py images --folder DIR   8 million images on disk: 7 GB, hours
    python benchmarks/speed/fit.py processes             torchrun with one process and with two

iteration   one iteration of k-subspaces beside one of k-means with as many columns (MNIST)
growth      time per sample and memory of k-subspaces, for more and more samples on disk
images      the same of two epochs of kSCN on more and more digits, the fewest in memory
processes   samples per second of two processes of one thread beside one; "apart" are two that
            share nothing but the machine: no exchange can be faster
`--small` makes everything tiny, to see that it runs. MNIST: `kscn data get mnist`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from kscn import KSCN, KSubspaces, data
from kscn.features import Components
from kscn.nn.rows import through

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `record`
import record

K = 10
SEEDS = 3
BATCHES = (256, 2048)
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


def iteration(small: bool, folder: Path) -> dict[str, Any]:
    """k-subspaces of 15 dimensions and k-means with 150 centres: both multiply by 150 columns.

    Seconds per iteration of whole fits and of the first ones alone: later ones skip samples whose
    label cannot change. k-means as one calls it begins with k-means++, which counts.
    """
    pixels = np.asarray(data.load("digits" if small else "mnist").samples)
    rows = torch.from_numpy(pixels.reshape(len(pixels), -1)).float()
    z = through([Components.fit(rows, 20 if small else 150)], rows).numpy()
    p, few = (2, 3) if small else (15, 20)
    bases = random_bases(K, z.shape[1], p)
    rounds = []
    for seed in range(SEEDS):  # in turn, so that all meet the same machine
        row = {}
        for most in (few, 300):
            start = {"subspace_dim": p, "init": bases, "random_state": seed}
            ours = KSubspaces(K, **start, max_iter=most, tol=0.0)
            row[f"k-subspaces, {most}"] = seconds(ours, z) / ours.n_iter_
            theirs = KMeans(K * p, n_init=1, init="random", random_state=seed, max_iter=most, tol=0)
            row[f"k-means from random centres, {most}"] = seconds(theirs, z) / theirs.n_iter_
        called = KMeans(K * p, n_init=1, random_state=seed)
        row["k-means as called"] = seconds(called, z) / called.n_iter_
        rounds.append({name: round(1e3 * value, 2) for name, value in row.items()})
        print(rounds[-1], flush=True)

    def ratio(ours: str, theirs: str) -> float:
        return statistics.median(row[ours] / row[theirs] for row in rounds)

    return {
        "n": len(z), "d": z.shape[1], "p": p, "milliseconds": rounds,
        "ratio": ratio("k-subspaces, 300", "k-means as called"),
        "ratio to random centres": ratio("k-subspaces, 300", "k-means from random centres, 300"),
        "ratio of the first iterations": ratio(
            f"k-subspaces, {few}", f"k-means from random centres, {few}"
        ),
    }  # fmt: skip


def growth(small: bool, folder: Path) -> dict[str, Any]:
    """Five iterations from given bases: the search for a start does not grow with n."""
    rng = np.random.default_rng(0)
    bases, rows = random_bases(K, 64, 5), []
    for n in (2_000, 4_000) if small else (100_000, 1_000_000, 10_000_000):
        file = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (n, 64))
        for begin in range(0, n, 100_000):
            size = min(100_000, n - begin)
            picked, inside = bases[rng.integers(K, size=size)], rng.standard_normal((size, 5))
            x = np.einsum("ndp,np->nd", picked, inside)
            file[begin : begin + size] = x + 0.2 * rng.standard_normal(x.shape)
        file.flush()
        rows.append({"n": n, **apart("vectors", str(folder / "x.npy"))})
        print(rows[-1], flush=True)
    return {"growth": rows}


def vectors(path: str) -> dict[str, float]:
    """Fit a file in a process of its own: time, and growth of resident memory."""
    warm, _, _ = data.make_union_of_subspaces(20_000, K, 64, 5, random_state=0)
    KSubspaces(K, subspace_dim=5, n_init=1, max_iter=2, random_state=0).fit(warm)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the warm-up
    before = record.resident("VmRSS")
    settings = {"subspace_dim": 5, "init": random_bases(K, 64, 5, 1), "max_iter": 5, "tol": 0.0}
    model = KSubspaces(K, random_state=0, **settings)
    took = seconds(model, np.load(path, mmap_mode="r"))
    peak = record.resident("VmHWM") - before
    per_sample = 1e6 * took / len(model.labels_)
    return {"seconds": took, "us_per_sample": per_sample, "peak_growth_mb": peak}


def images(small: bool, folder: Path) -> dict[str, Any]:
    """Epochs of kSCN, with their encoding and updates; the fewest images are in memory."""
    figures, rng = {}, np.random.default_rng(0)
    digits = np.asarray(data.load("digits" if small else "mnist").samples)
    for n in (300, 600) if small else (70_000, 700_000, 8_000_000):
        file = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (n, *digits.shape[1:]))
        for begin in range(0, n, 20_000):
            file[begin : begin + 20_000] = rng.choice(digits, min(20_000, n - begin))
        file.flush()
        figures[f"kscn:{n}"] = apart("epochs", str(folder / "x.npy"), str(int(not figures)))
        print(n, figures[f"kscn:{n}"], flush=True)
    return figures


def epochs(path: str, in_memory: str) -> dict[str, float]:
    """Two epochs of the alternation after one of pretraining, in a process of its own."""
    x = np.load(path, mmap_mode="r")
    x = np.array(x) if in_memory == "1" else x
    model = KSCN(K, pretrain_epochs=1, epochs=2, tol=0.0, random_state=0).fit(x)
    began = max(entry["seconds"] for entry in model.history_ if entry["stage"] != "fit")
    rate = 2 * len(x) / (model.history_[-1]["seconds"] - began)
    return {"samples_per_second": rate, "peak_resident_mb": record.resident("VmHWM")}


def processes(small: bool, folder: Path) -> dict[str, Any]:
    """The same fits by torchrun with one process, with two, and by two that share nothing."""
    batches = BATCHES[:1] if small else BATCHES
    kinds = {"k-subspaces": "0", **{f"kscn, mini-batches of {size}": str(size) for size in batches}}
    figures: dict[str, Any] = {}
    for name, batch in kinds.items():
        rates: dict[str, float] = {}
        for _ in range(1 if small else SEEDS):  # in turn; the fastest of each counts
            for count in ("1", "2", "2 apart"):
                rates[count] = max(rates.get(count, 0.0), rate(count, batch, str(int(small))))
        speedup = {count: round(rates[count] / rates["1"], 2) for count in ("2", "2 apart")}
        figures[name] = {"samples_per_second": rates, "speedup": speedup}
        print(name, figures[name], flush=True)
    return figures


def rate(count: str, batch: str, small: str) -> float:
    """Samples per second of all processes."""
    words = [__file__, "--part", "work", batch, small]
    if count == "2 apart":
        both = [subprocess.Popen([sys.executable, *words], env=ONE_THREAD, stdout=-1) for _ in "12"]
        return sum(json.loads(one.communicate()[0].splitlines()[-1])["rate"] for one in both)
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    return float(json.loads(command([*launch, *words], env=ONE_THREAD))["rate"])


def work(batch: str, small: str) -> dict[str, float]:
    """Iterations of k-subspaces, or epochs of kSCN: samples per second after the first."""
    rounds = 4
    if "WORLD_SIZE" in os.environ:  # started by torchrun
        torch.distributed.init_process_group("gloo")
    if batch == "0":
        x = torch.randn(
            2_000 if small == "1" else 1_000_000, 80, generator=torch.Generator().manual_seed(0)
        )
        bases = random_bases(K, 80, 7)
        model = KSubspaces(K, init=bases, subspace_dim=7, trim=0.1, max_iter=rounds, tol=0.0)
        return {"rate": len(x) * (rounds - 1) / later(model.fit(x))}
    n = 600 if small == "1" else 12_000
    pixels = np.random.default_rng(0).integers(0, 255, (n, 28, 28), dtype=np.uint8)
    epochs = {"pretrain_epochs": 0, "epochs": rounds, "tol": 0.0}
    model = KSCN(K, batch_size=int(batch), random_state=0, **epochs)
    return {"rate": n * (rounds - 1) / later(model.fit(pixels))}


def command(words: list[str], **options: Any) -> str:
    """The last line that a Python program prints."""
    done = subprocess.run([sys.executable, *words], stdout=-1, text=True, check=True, **options)
    return done.stdout.splitlines()[-1]


def apart(part: str, *words: str) -> dict[str, Any]:
    """What a function measures in a process of its own."""
    return dict(json.loads(command([__file__, "--part", part, *words])))


def seconds(model: Any, x: Any) -> float:
    began = time.perf_counter()
    model.fit(x)
    return time.perf_counter() - began


def later(model: Any) -> float:
    """Seconds of a fit's rounds but the first, which also loads and caches."""
    ends = [entry["seconds"] for entry in model.history_ if entry["stage"] == "fit"]
    return ends[-1] - ends[0]


def random_bases(k: int, d: int, p: int, seed: int = 0) -> NDArray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((k, d, p)))[0]


PARTS = {part.__name__: part for part in (iteration, growth, images, processes)}
CHILDREN = {child.__name__: child for child in (vectors, epochs, work)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: iteration growth")
    parser.add_argument("--folder", type=Path, help="for large files; kept, and gone on with")
    parser.add_argument("--small", action="store_true", help="tiny, and nothing is written")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        measured = json.dumps(CHILDREN[options.part[0]](*options.part[1:]))
        if os.environ.get("RANK", "0") == "0":
            print(measured)
        return
    for part in options.parts or ["iteration", "growth"]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.folder or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            figures = PARTS[part](options.small, folder)
        print(json.dumps(figures, indent=1))
        if not options.small:
            config = {"threads": torch.get_num_threads(), "load": os.getloadavg()}
            record.write("speed", config, figures, entry=part)


if __name__ == "__main__":
    main()
