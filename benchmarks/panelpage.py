"""docs/panel.md from the figures of results/panel.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from panelsets import LARGEST, OUTLIERS, SETS, SMALLEST, UNION
from panelsummary import AIM, ALLOWED, CORRELATION, MOST, OURS, difference, ratio

TITLES = {
    OURS: "`best`",
    "k-means": "k-means",
    "gaussian-mixture": "Gaussian mixture",
    "k-subspaces": "k-subspaces",
    "umap-k-means": "UMAP + k-means",
    "umap-hdbscan": "UMAP + HDBSCAN",
}
SHOWN = 3  # candidates of every set
BESIDE = {"k-means": "k-means", "umap-k-means": "UMAP + k-means", OURS: "`best`"}

HEAD = """# Many kinds of data

Written by `python benchmarks/panel.py` from results/panel.json; do not edit.

What the method `best` (`KSCNPlus`) finds with default settings on data of many kinds, beside what
one would otherwise try. Every method gets the same rows in a random order and the true number of
clusters (HDBSCAN has no such setting), images as pixels and vectors unscaled; labels only score.
Every point is clustered and scored.

- *k-means*: scikit-learn's, the best of 10 starts.
- *Gaussian mixture*: scikit-learn's, on at most 50 principal components; full covariances where
  there are at least twice as many points per cluster as components, else diagonal ones.
- *k-subspaces*: `KSubspaces` with default settings.
- *UMAP + k-means*: umap-learn to 10 dimensions with 30 neighbours and `min_dist=0`, then k-means.
- *UMAP + HDBSCAN*: the same coordinates; clusters of at least n / 140 points and never fewer than
  5. Points that it calls noise get the cluster of the nearest point that is none.

Figures are per cent, mean ± standard deviation over seeds. Sets marked ○ are held out: they are
summed up apart from the sets that the method was chosen on.
"""


def page(figures: Mapping[str, Any]) -> str:
    """The whole page."""
    sets = figures["sets"]
    lines = [HEAD]
    if not sets:
        return "\n".join([*lines, "Nothing was measured yet.", ""])
    lines += ["## In short", "", *_short(figures["summary"]), ""]
    for score in ("nmi", "acc", "ari"):
        lines += [f"## {score.upper()}", "", *_scores(sets, score), ""]
    lines += ["## Bars", "", *_bars(sets, figures["summary"]["all"]["bars missed"]), ""]
    lines += ["## Seconds", "", *_seconds(sets), ""]
    lines += ["## The measure and the truth", "", *_measure(sets), ""]
    lines += ["## The sets", "", *_about(), "", _commits(sets), ""]
    return "\n".join(lines)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]], words: int = 1) -> list[str]:
    header = list(header)
    sides = [":--"] * words + ["--:"] * (len(header) - words)
    return [f"| {' | '.join(cells)} |" for cells in (header, sides, *rows)]


def _title(entry: Mapping[str, Any]) -> str:
    return entry["title"] + (" ○" if entry["held_out"] else "")


def _figure(entry: Mapping[str, Any], method: str, name: str, digits: int = 1) -> str:
    found = entry["mean"].get(method, {}).get(name)
    if found is None:
        return "-"
    deviation = f" ± {found['sd']:.{digits}f}" if entry["mean"][method]["seeds"] > 1 else ""
    return f"{found['mean']:.{digits}f}{deviation}"


def _short(summary: Mapping[str, Any]) -> list[str]:
    """One row per part of the panel."""
    header = ["sets", "number"]
    for other, allowed in ALLOWED.items():
        header += [f"NMI above {TITLES[other]}", "least", f"below by more than {allowed:g}"]
    header += ["correlation, median", "lowest"]
    rows = []
    for part, found in summary.items():
        cells = [part, str(found["sets"])]
        for other, allowed in ALLOWED.items():
            gap = found.get(f"nmi above {other}")
            below = gap and str(len(gap[f"below by more than {allowed:g}"]))
            cells += [f"{gap['mean']:+.1f}", f"{gap['least']:+.1f}", below] if gap else ["-"] * 3
        rho = found.get("correlation of measure and nmi")
        cells += [f"{rho['median']:.2f}", f"{rho['lowest']:.2f}"] if rho else ["-"] * 2
        rows.append(cells)
    text = (
        f"Asked for: on average {AIM:g} points of NMI above both, on no set below k-means by more "
        f"than {ALLOWED['k-means']:g} or below UMAP + k-means by more than "
        f"{ALLOWED['umap-k-means']:g}, and a correlation of measure and NMI of "
        f"{CORRELATION['median']:g} in the median and {CORRELATION['lowest']:g} at least."
    )
    return [text, "", *_table(header, rows)]


def _scores(sets: Mapping[str, Any], score: str) -> list[str]:
    rows = [
        [
            _title(entry),
            f"{entry['n']:,}",
            str(entry["k"]),
            *(_figure(entry, method, score) for method in TITLES),
        ]
        for entry in sets.values()
    ]
    return _table(["set", "n", "k", *TITLES.values()], rows)


def _bars(sets: Mapping[str, Any], missed: Mapping[str, list[str]]) -> list[str]:
    """What was asked for before it was measured."""
    rows = []
    for name, entry in sets.items():
        asked = [
            f"{what if what == 'seconds' else what.replace('acc', 'ACC').replace('nmi', 'NMI')} "
            f"{value:g}"
            for what, value in SETS[name].bar.items()
        ]
        for score, (other, method, slack) in SETS[name].beside.items():
            where = "" if other == name else f" on {SETS[other].title}"
            less = f" less {slack:g}" if slack else ""
            asked.append(f"{score.upper()} of {BESIDE[method]}{where}{less}")
        if asked and OURS in entry["mean"]:
            least = entry["mean"][OURS]["acc"]["least"]
            rows.append(
                [
                    _title(entry),
                    ", ".join(asked),
                    "**missed**" if name in missed else "reached",
                    _figure(entry, OURS, "acc"),
                    f"{least:.1f}",
                    _figure(entry, OURS, "nmi"),
                ]
            )
    return _table(["set", "asked for", "", "ACC", "least seed", "NMI"], rows, words=3)


def _seconds(sets: Mapping[str, Any]) -> list[str]:
    rows = []
    for entry in sets.values():
        ratios = [ratio(entry, name) for name in ("seconds", "seconds without a seed")]
        rows.append(
            [
                _title(entry),
                _figure(entry, OURS, "seconds before refinement"),
                *(_figure(entry, method, "seconds") for method in TITLES),
                *("-" if value is None else f"{value:.2f}" for value in ratios),
            ]
        )
    text = (
        "UMAP works on one core where a seed is given and on all where none is, so there are two "
        "ratios: our time before the refinement over that of UMAP + k-means with a seed, and "
        f"without. Up to {MOST:,} samples the first should be at most 1. Times of several problems "
        "are sums."
    )
    header = ["set", "`best` before refinement", *TITLES.values(), "ratio", "without a seed"]
    return [text, "", *_table(header, rows)]


def _measure(sets: Mapping[str, Any]) -> list[str]:
    """The pools of candidates: correlations, and the best of each by the measure."""
    text = (
        "`best` makes many candidates and takes the one with the highest self-consistency, which "
        "needs no labels. Spearman's correlation of that measure with the NMI of the candidates, "
        "on the sample in which they were found; regret is how far the NMI of the candidate with "
        "the highest measure is below that of the best one in the pool. Then the first "
        f"{SHOWN} candidates of every set, seed 0."
    )
    pools, tops = [], []
    for entry in sets.values():
        found = [row["pool"] for row in entry["seeds"].values() if row.get("pool")]
        if not found:
            continue
        regret = [
            one["nmi of the best by truth"] - one["nmi of the best by measure"] for one in found
        ]
        rho = entry["mean"].get("spearman")
        confidence = _figure(entry, OURS, "confidence", 2)
        gap = difference(entry, "k-means")
        pools.append(
            [
                _title(entry),
                f"{found[0]['candidates']:.0f}",
                f"{rho['mean']:.2f}" if rho else "-",
                f"{sum(regret) / len(regret):.1f}",
                confidence,
                "-" if gap is None else f"{gap:+.1f}",
            ]
        )
        first = entry["seeds"].get("0", {}).get("pool") or {}
        for one in first.get("top", [])[:SHOWN]:
            scores = [f"{one[score]:.1f}" for score in ("acc", "nmi")]
            tops.append(
                [_title(entry), one["space"], one["method"], f"{one['measure']:.3f}", *scores]
            )
    if not pools:
        return ["No pools of candidates were recorded."]
    header = ["set", "candidates", "correlation", "regret", "confidence", "NMI above k-means"]
    lines = [text, "", *_table(header, pools), ""]
    return lines + _table(["set", "space", "method", "measure", "ACC", "NMI"], tops, words=3)


def _about() -> list[str]:
    return [
        f"Unions of subspaces: {UNION['n_samples']} points near {UNION['n_clusters']} subspaces of "
        f"dimension {UNION['subspace_dim']} in {UNION['ambient_dim']} dimensions, noise "
        f"{UNION['noise']:g}; {100 * OUTLIERS:g} % outliers, which are clustered but have no class "
        "to be scored by. Few images of each class, uneven classes and unions are drawn anew for "
        f"every seed; the sizes of uneven classes are a geometric series from {SMALLEST} to "
        f"{LARGEST:,} in random order, as far as the test images have so many. Extended Yale B in "
        "groups: people 1 to 10, 11 to 20 and 21 to 30, the mean of the three. Hopkins155: the "
        "mean over the 155 sequences (the error is 100 - ACC). pbmc: counts per 10,000, their "
        "logarithm, 30 principal components."
    ]


def _commits(sets: Mapping[str, Any]) -> str:
    rows = [row["methods"].get(OURS) for entry in sets.values() for row in entry["seeds"].values()]
    found = sorted({row["commit"] for row in rows if row})
    return f"`best` was measured at commit {', '.join(found)}."
