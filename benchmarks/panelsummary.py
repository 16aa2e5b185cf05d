"""What the records of the panel say together: means, differences, ratios, correlations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from panelsets import SETS

OURS = "kscn-plus"
# By how much NMI may fall short of each of these on any set, and by how much it should be above
# on average.
ALLOWED = {"k-means": 1.0, "umap-k-means": 2.0}
AIM = 3.0
# Times are compared up to so many samples in a problem.
MOST = 20_000
CORRELATION = {"median": 0.93, "lowest": 0.8}


def spread(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, standard deviation and least over seeds of every figure of every method."""
    methods = {method for row in rows for method in row["methods"]}
    out: dict[str, Any] = {}
    for method in sorted(methods):
        found = [row["methods"][method] for row in rows if method in row["methods"]]
        names = [name for name in found[0] if name not in ("commit", "load")]
        out[method] = {name: _spread([f[name] for f in found if name in f]) for name in names}
        out[method]["seeds"] = len(found)
    correlations = [row["pool"]["spearman"] for row in rows if row.get("pool")]
    correlations = [value for value in correlations if value is not None]
    if correlations:
        out["spearman"] = _spread(correlations)
    return out


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "mean": round(float(np.mean(values)), 3),
        "sd": round(float(np.std(values)), 3),
        "least": min(values),
    }


def summary(sets: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of all sets, of those held out and of those in sight."""
    held_out = {name for name, entry in sets.items() if entry["held_out"]}
    parts = {"all": set(sets), "held out": held_out, "in sight": set(sets) - held_out}
    return {part: _summary(sets, names) for part, names in parts.items()}


def _summary(sets: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    part = {name: entry for name, entry in sets.items() if name in names}
    out: dict[str, Any] = {"sets": len(part)}
    for other, allowed in ALLOWED.items():
        found = {name: difference(entry, other) for name, entry in part.items()}
        found = {name: round(value, 2) for name, value in found.items() if value is not None}
        if found:
            out[f"nmi above {other}"] = {
                "sets": len(found),
                "mean": round(float(np.mean(list(found.values()))), 2),
                "least": min(found.values()),
                "least on": min(found, key=found.__getitem__),
                f"below by more than {allowed:g}": {n: v for n, v in found.items() if v < -allowed},
            }
    for seconds in ("seconds", "seconds without a seed"):
        found = {n: ratio(e, seconds) for n, e in part.items() if e["largest"] <= MOST}
        found = {name: round(value, 2) for name, value in found.items() if value is not None}
        if found:
            out[f"time over that of umap-k-means, its {seconds}"] = {
                "sets": len(found),
                "median": round(float(np.median(list(found.values()))), 2),
                "highest": max(found.values()),
                "highest on": max(found, key=found.__getitem__),
                "above 1": {n: v for n, v in found.items() if v > 1},
            }
    found = {n: e["mean"]["spearman"]["mean"] for n, e in part.items() if "spearman" in e["mean"]}
    if found:
        out["correlation of measure and nmi"] = {
            "sets": len(found),
            "median": round(float(np.median(list(found.values()))), 3),
            "lowest": min(found.values()),
            "lowest on": min(found, key=found.__getitem__),
        }
    short = {name: missed(sets, name) for name in part}
    out["bars missed"] = {name: reasons for name, reasons in short.items() if reasons}
    return out


def difference(entry: Mapping[str, Any], other: str) -> float | None:
    """NMI of ours minus that of another method, over the seeds that both have."""
    pairs = _pairs(entry, other)
    if not pairs:
        return None
    return float(np.mean([own["nmi"] - theirs["nmi"] for own, theirs in pairs]))


def ratio(entry: Mapping[str, Any], seconds: str) -> float | None:
    """Our time without the refinement over that of UMAP + k-means."""
    pairs = [(o, t) for o, t in _pairs(entry, "umap-k-means") if seconds in t]
    if not pairs:
        return None
    return sum(own["seconds before refinement"] for own, _ in pairs) / sum(
        theirs[seconds] for _, theirs in pairs
    )


def _pairs(entry: Mapping[str, Any], other: str) -> list[tuple[Any, Any]]:
    rows = [row["methods"] for row in entry["seeds"].values()]
    return [(row[OURS], row[other]) for row in rows if OURS in row and other in row]


def missed(sets: Mapping[str, Any], name: str) -> list[str]:
    """Which bars of a set were not reached, by the figures that the page shows."""
    found = sets[name]["mean"].get(OURS)
    if found is None:
        return []
    out = []
    for what, bar in SETS[name].bar.items():
        of, score = ("least", what[6:]) if what.startswith("least ") else ("mean", what)
        value = round(found[score][of], 1)
        if value > bar if what == "seconds" else value < bar:
            out.append(f"{what} {value:g}, bar {bar:g}")
    for score, (other_set, method, slack) in SETS[name].beside.items():
        beside = sets.get(other_set, {}).get("mean", {}).get(method)
        if beside is None:
            continue
        value, bar = (round(figures[score]["mean"], 1) for figures in (found, beside))
        if value < round(bar - slack, 1):
            out.append(f"{score} {value:g}, {method} on {other_set} {bar:g}")
    return out
