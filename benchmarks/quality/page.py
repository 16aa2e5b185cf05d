"""docs/panel.md from results/quality.json.

python benchmarks/quality/page.py
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sets import LARGEST, OUTLIERS, SMALLEST, UNION

ROOT = Path(__file__).resolve().parents[2]
TITLES = {
    "best": "`best`",
    "k-means": "k-means",
    "umap-k-means": "UMAP + k-means",
    "umap-hdbscan": "UMAP + HDBSCAN",
}

HEAD = """# Many kinds of data

Written by `python benchmarks/quality/page.py` from `results/quality.json`, which
`{command}` measures; do not edit.

What the method `best` (`KSCNPlus`) finds with default settings on data of many kinds, beside what
one would otherwise try. Every method gets the same rows in a random order and the true number of
clusters (HDBSCAN has no such setting), images as pixels and vectors unscaled; labels only score.
Every point is clustered and scored.

- *k-means*: scikit-learn's, the best of 10 starts.
- *UMAP + k-means*: umap-learn to 10 dimensions with 30 neighbours and `min_dist=0`, then k-means.
- *UMAP + HDBSCAN*: the same coordinates; clusters of at least n / 140 points and never fewer than
  5. Points that it calls noise get the cluster of the nearest point that is none.

Figures are per cent, mean ± standard deviation over three seeds, five for the sets of 70,000;
without ± they are of one.
*Confidence* is the self-consistency of what `best` took (`confidence_`), from 0 to 1. Sets marked ○
are held out: no rule of the method was chosen on them. Seconds are of two cores that often had
other work.
"""

ABOUT = f"""## The sets

Unions of subspaces: {UNION["n_samples"]} points near {UNION["n_clusters"]} subspaces of dimension
{UNION["subspace_dim"]} in {UNION["ambient_dim"]} dimensions, noise {UNION["noise"]:g};
{100 * OUTLIERS:g} % outliers, which are clustered but have no class to be scored by. Few images of
each class, uneven classes and unions are drawn anew for every seed; the sizes of uneven classes are
a geometric series from {SMALLEST} to {LARGEST:,} in random order, as far as the test images have so
many. Extended Yale B in groups: people 1 to 10, 11 to 20 and 21 to 30, the mean of the three.
Hopkins155: the mean over the 155 sequences (the error is 100 - ACC). pbmc: counts per 10,000, their
logarithm, 30 principal components. KEEL: tables of that repository.
"""


def page(record: Mapping[str, Any]) -> str:
    """The whole page."""
    sets = record["figures"]["sets"]
    head = HEAD.format(command=record["command"])
    parts = [head, "## In short", "", *summary(sets), "", "## Set by set", "", *rows(sets), ""]
    commits = sorted({c for entry in sets.values() for c in entry["methods"]["best"]["commits"]})
    parts += [ABOUT, f"`best` was measured at commits {', '.join(commits)}.", ""]
    return "\n".join(parts)


def summary(sets: Mapping[str, Any]) -> list[str]:
    """By how much `best` is above the others, on average and at least."""
    lines = [
        "| NMI of `best` above that of | sets | number | mean | least | on |",
        "|:--|:--|--:|--:|--:|:--|",
    ]
    for other in list(TITLES)[1:]:
        for part, held_out in (("all", (True, False)), ("held out ○", (True,))):
            gaps = {}
            for entry in sets.values():
                if entry["held_out"] in held_out and other in entry["methods"]:
                    ours, theirs = (entry["methods"][m]["mean"]["nmi"] for m in ("best", other))
                    gaps[entry["title"]] = ours - theirs
            if gaps:
                least, mean = min(gaps, key=gaps.__getitem__), np.mean(list(gaps.values()))
                cells = [TITLES[other], part, str(len(gaps)), f"{mean:+.1f}", f"{gaps[least]:+.1f}"]
                lines.append(f"| {' | '.join([*cells, least])} |")
    return lines


def rows(sets: Mapping[str, Any]) -> list[str]:
    """ACC, confidence and seconds of `best`, and the NMI of all."""
    header = ["set", "n", "k", "`best` ACC", "confidence", "seconds"]
    header += [f"{title} NMI" for title in TITLES.values()]
    lines = [" | ".join(header), " | ".join([":--"] + ["--:"] * (len(header) - 1))]
    for entry in sets.values():
        cells = [entry["title"] + (" ○" if entry["held_out"] else "")]
        cells += [f"{entry['n']:,}", str(entry["k"]), figure(entry, "best", "acc")]
        cells += [f"{entry['methods']['best']['mean']['confidence']:.2f}"]
        cells += [f"{entry['methods']['best']['mean']['seconds']:.1f}"]
        cells += [figure(entry, method, "nmi") for method in TITLES]
        lines.append(" | ".join(cells))
    return [f"| {line} |" for line in lines]


def figure(entry: Mapping[str, Any], method: str, score: str) -> str:
    column = entry["methods"].get(method)
    if column is None:
        return "-"
    spread = f" ± {column['std'][score]:.1f}" if len(column["seeds"]) > 1 else ""
    return f"{column['mean'][score]:.1f}{spread}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "quality.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "panel.md")
    options = parser.parse_args(arguments)
    record = json.loads(options.results.read_text(encoding="utf-8"))["panel"]
    options.out.write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
