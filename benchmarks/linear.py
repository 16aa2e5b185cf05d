"""Speed and memory of the linear engine, as ratios within one run: results/linear.json.

    python benchmarks/linear.py            everything (about ten minutes on two cores; run it alone)
    python benchmarks/linear.py pass fit   only these parts, of pass, fit, wide and growth

`fit` needs MNIST (kscn data get mnist, or KSCN_DATA).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from sklearn.cluster import KMeans

from kscn import KSubspaces, data, metrics
from kscn.data import as_source
from kscn.runtime.blocks import Blocks
from kscn.stages.lloyd import Lloyd
from kscn.subspaces import Subspaces
from kscn.subspaces.search import Problem, find_start

CPU = torch.device("cpu")


def best_time(work: Callable[[], object], repeats: int = 7) -> float:
    """Shortest of several runs, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def matmul_peak() -> float:
    """Measured float32 matrix-product peak of this machine in GFLOP/s."""
    a = torch.randn(2048, 2048)
    return 2 * 2048**3 / best_time(lambda: a @ a, 15) / 1e9


def plain_loop(blocks: Blocks, start: Subspaces, **options: Any) -> Lloyd:
    """A loop over the blocks from a given start."""
    pool = blocks.take(np.arange(2048))
    generator = torch.Generator().manual_seed(0)
    return Lloyd(blocks, start, trim=0.0, weights=None, pool=pool, generator=generator, **options)


def one_pass(peak: float) -> dict[str, Any]:
    """One assignment and update of everything, against the matrix-product peak."""
    n, d, k, p = 70_000, 150, 10, 15
    torch.manual_seed(0)
    z = torch.nn.functional.normalize(torch.randn(n, d))
    blocks = Blocks(as_source(z), torch.float32, CPU)
    start = Subspaces(torch.linalg.qr(torch.randn(k, d, p)).Q)
    flops = 2 * n * d * k * p + 2 * n * d * d
    out = {"n": n, "d": d, "k": k, "p": p, "gflop": flops / 1e9}
    for name, dtype in (("float32_sums", torch.float32), ("float64_sums", torch.float64)):
        loop = plain_loop(blocks, start, accelerate=False, product_dtype=dtype)

        def assign_and_update(loop: Lloyd = loop) -> None:
            loop.subspaces = start
            loop._assign()
            loop._update()

        seconds = best_time(assign_and_update)
        out[name] = {"ms": 1e3 * seconds, "share_of_peak": flops / seconds / 1e9 / peak}
    return out


def mnist_150() -> np.ndarray:
    """MNIST pixels reduced to 150 dimensions by PCA, unit norm."""
    pixels = np.asarray(data.load("mnist").samples).reshape(-1, 784).astype(np.float32) / 255
    centred = torch.from_numpy(pixels - pixels.mean(axis=0))
    directions = torch.linalg.eigh((centred.mT @ centred).double()).eigenvectors[:, -150:]
    return torch.nn.functional.normalize(centred @ directions.float()).numpy()


def whole_fit() -> dict[str, Any]:
    """A whole fit, plain and accelerated, beside scikit-learn's k-means with as many columns."""
    z = mnist_150()
    k, p = 10, 15
    blocks = Blocks(as_source(z), torch.float32, CPU)
    out: dict[str, Any] = {"n": len(z), "d": 150, "k": k, "p": p}
    began = time.perf_counter()
    means = KMeans(k * p, n_init=1, init="random", random_state=0, max_iter=100).fit(z)
    kmeans = (time.perf_counter() - began) / means.n_iter_
    out["kmeans_150_ms_per_iteration"] = 1e3 * kmeans
    for n_init, tol in ((1, 0.0), (10, 0.0), (10, 1e-4)):
        rows = []
        for seed in range(2):
            generator = torch.Generator().manual_seed(seed)
            pool = blocks.take(np.sort(np.random.default_rng(seed).choice(len(z), 3000, False)))
            problem = Problem(pool, None, torch.full((k,), p), False, 0.0, generator)
            # One swept start without swaps (1) or the default search (10), as in KSubspaces.fit.
            start = find_start(problem, n_init)
            runs: dict[str, Any] = {}
            for name, options in {
                "accelerated": {},
                "plain_float32_sums": {"accelerate": False, "product_dtype": torch.float32},
                "plain_float64_sums": {"accelerate": False},
            }.items():
                loop = plain_loop(blocks, start, **options)
                began = time.perf_counter()
                iterations = loop.run(300, tol, lambda _: None).iterations
                runs[name] = {
                    "seconds": time.perf_counter() - began,
                    "iterations": len(iterations),
                    "evaluated": float(np.mean([i.evaluated for i in iterations])),
                }
                runs[name]["ms_per_iteration"] = 1e3 * runs[name]["seconds"] / len(iterations)
                if name == "accelerated":
                    labels = loop.labels.clone()
                else:
                    runs[name]["labels_equal"] = bool((loop.labels == labels).all())
            fast = runs["accelerated"]["seconds"]
            runs["speedup_over_plain_float32"] = runs["plain_float32_sums"]["seconds"] / fast
            runs["speedup_over_plain_float64"] = runs["plain_float64_sums"]["seconds"] / fast
            ratio = runs["accelerated"]["ms_per_iteration"] / (1e3 * kmeans)
            runs["iteration_against_kmeans"] = ratio
            rows.append({"seed": seed, **runs})
            print(f"n_init={n_init} tol={tol} seed={seed}", json.dumps(runs), flush=True)
        out[f"n_init={n_init} tol={tol}"] = rows
    return out


def wide_fit() -> list[dict[str, Any]]:
    """CPU seconds of default fits of samples with many columns, beside those of k-means.

    With little noise and with so much that the samples have no leading directions.
    """
    rows = []
    for noise in (0.01, 0.1):
        X, y, _ = data.make_union_of_subspaces(4000, 10, 784, 10, noise=noise, random_state=0)
        seconds: dict[str, list[float]] = {"k-subspaces": [], "k-means": []}
        for seed in range(3):
            for name, model in {
                "k-subspaces": KSubspaces(10, random_state=seed),
                "k-means": KMeans(10, n_init=10, random_state=seed),
            }.items():
                began = time.process_time()
                model.fit(X)
                seconds[name].append(time.process_time() - began)
                if isinstance(model, KSubspaces):
                    accuracy = metrics.clustering_accuracy(y, model.labels_)
        fit, means = (float(np.median(seconds[name])) for name in ("k-subspaces", "k-means"))
        shape = {"n": len(X), "d": X.shape[1], "k": 10, "noise": noise}
        rows.append({**shape, "cpu_seconds": fit, "kmeans_n_init_10_cpu_seconds": means})
        rows[-1] |= {"against_kmeans": fit / means, "accuracy": accuracy}
        print(rows[-1], flush=True)
    return rows


def growth(folder: Path) -> list[dict[str, Any]]:
    """Time per sample of five iterations at 0.1, 1 and 10 million samples on disk, and memory."""
    rows = []
    for n in (100_000, 1_000_000, 10_000_000):
        path = folder / f"{n}.npy"
        written = np.lib.format.open_memmap(path, "w+", np.float32, (n, 64))
        for begin in range(0, n, 100_000):
            # One union of subspaces in slices: the bases come from the first seed, only the
            # samples differ.
            rng = np.random.default_rng(begin)
            bases = np.linalg.qr(np.random.default_rng(0).standard_normal((10, 64, 5)))[0]
            label = rng.integers(10, size=100_000)
            x = np.einsum("ndp,np->nd", bases[label], rng.standard_normal((100_000, 5)))
            written[begin : begin + 100_000] = x + 0.2 * rng.standard_normal(x.shape)
        written.flush()
        del written
        child = subprocess.run(
            [sys.executable, __file__, "--child", str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
        rows.append({"n": n, **json.loads(child.stdout)})
        path.unlink()
        print(rows[-1])
    return rows


def child(path: str) -> None:
    """Fit a file in a process of its own, and print time and growth of resident memory."""
    warm, _, _ = data.make_union_of_subspaces(20_000, 10, 64, 5, random_state=0)
    KSubspaces(10, subspace_dim=5, n_init=2, max_iter=2, random_state=0).fit(warm)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the warm-up
    before = record.resident("VmRSS")
    # The start is not measured: it does not depend on n. Random bases keep the loop busy.
    bases = np.linalg.qr(np.random.default_rng(1).standard_normal((10, 64, 5)))[0]
    model = KSubspaces(10, subspace_dim=5, init=bases, max_iter=5, tol=0.0, random_state=0)
    began = time.perf_counter()
    model.fit(np.load(path, mmap_mode="r"))
    seconds = time.perf_counter() - began
    grown = record.resident("VmHWM") - before
    per_sample = 1e6 * seconds / len(model.labels_)
    print(
        json.dumps({"seconds": seconds, "us_per_sample": per_sample, "peak_growth_mb": grown}),
        flush=True,
    )


def main() -> None:
    """Run the chosen parts and write what they measured."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
        return
    parts = sys.argv[1:] or ["pass", "fit", "wide", "growth"]
    peak = matmul_peak()
    figures: dict[str, Any] = {"matmul_peak_gflops": peak}
    if "pass" in parts:
        figures["pass"] = one_pass(peak)
        print(json.dumps(figures["pass"]))
    if "fit" in parts:
        figures["fit"] = whole_fit()
    if "wide" in parts:
        figures["wide"] = wide_fit()
    if "growth" in parts:
        with tempfile.TemporaryDirectory() as folder:
            figures["growth"] = growth(Path(folder))
    name = "linear" if len(parts) == 4 else "linear_" + "_".join(parts)
    record.write(name, {"parts": parts, "threads": torch.get_num_threads()}, figures)


if __name__ == "__main__":
    main()
