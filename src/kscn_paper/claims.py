"""What the paper claims of cost, as a table: results/claims.json, which benchmarks/claims.py wrote.

The figures are measured in one run, every method in a process of its own; what is computed and not
measured (the memory of an n x n matrix, numbers of parameters) is called so.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kscn_paper.environment import QUIET
from kscn_paper.markdown import table_line

FILE = "claims.json"
OURS = "kscn-s"


def section(out: Path) -> list[str]:
    """Lines of Markdown; none where there is no such file in `out`, or not a sound one."""
    try:
        figures = json.loads((out / FILE).read_text(encoding="utf-8"))["figures"]
        whole, methods = list(_whole(figures)), list(_methods(figures["end_to_end"]["methods"]))
        note = _note(figures["end_to_end"]["methods"]) + _growth(figures)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ZeroDivisionError):
        return []
    head = ["what", f"{OURS} (tuned)", "beside it", "", "ratio"]
    lines = ["## What the paper claims of cost", ""]
    lines += map(table_line, [head, [":--", "--:", ":--", "--:", "--:"], *whole])
    head = ["10,000 images end to end", "minutes", "times ours", "peak memory, GB", "times ours"]
    lines += ["", *map(table_line, [head, [":--", "--:", "--:", "--:", "--:"], *methods])]
    return [*lines, "", note]


def _whole(figures: Mapping[str, Any]) -> Iterator[list[str]]:
    affinity, ours = figures["affinity"], figures["ours"]
    yield [
        f"memory for {affinity['samples']:,} images, GB",
        f"{ours['peak_mb'] / 1000:.2f}",
        "an n x n matrix in float64 (computed)",
        f"{affinity['gb']:.1f}",
        _times(1000 * affinity["gb"] / ours["peak_mb"]),
    ]
    counts = figures["parameters"]
    yield [
        "parameters of the network (counted)",
        f"{counts['cae']:,} (the paper's CAE)",
        "SAE of SAE-KM, DEC, DCN",
        f"{counts['sae']:,}",
        _times(counts["sae"] / counts["cae"]),
    ]


def _methods(methods: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    own = methods[OURS]
    for name, found in methods.items():
        row = [f"{OURS} (tuned)" if name == OURS else name]
        for key, unit in (("seconds", 60), ("peak_mb", 1000)):
            row.append(f"{found[key] / unit:.2f}")
            row.append("1" if name == OURS else _times(found[key] / own[key]))
        yield row


def _growth(figures: Mapping[str, Any]) -> str:
    own, ours = figures["end_to_end"]["methods"][OURS], figures["ours"]
    return (
        f" Ours takes {own['peak_mb'] / 1000:.2f} GB for 10,000 images and "
        f"{ours['peak_mb'] / 1000:.2f} GB for {ours['samples']:,}, most of it whatever their "
        "number is; that of an n x n matrix grows 49 times from one to the other."
    )


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"


def _note(methods: Mapping[str, Mapping[str, Any]]) -> str:
    load = ""
    if all(found.get("busy_elsewhere") is not None for found in methods.values()):
        most = max(found["busy_elsewhere"] for found in methods.values())
        load = "; nothing else was running"
        if most > QUIET:
            load = f"; other work kept up to {most:.1f} cores busy, so compare times with care"
    return (
        "Measured by `python benchmarks/claims.py`, one after another on one machine, each in a "
        f"process of its own{load}. End to end is from the images to the clusters, pretraining "
        "counted: ours, and that of the CAE on whose latents SSC, LRR and KSSC work. The paper "
        "says less than 8 minutes for its method, at least 40 for affinity methods, and about 37 "
        "GB for the affinity of 70,000 (GiB: 36.5)."
    )
