"""docs/paper_readings.md, written from the cells of `paper_readings.py` that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import readings
from readings import FACTORS, PAPER, Reading

Cells = Mapping[str, Mapping[str, Any]]
TITLES = {"mnist-test": "MNIST", "fashion-mnist-test": "Fashion-MNIST"}
SCORES = ("acc", "nmi")

INTRODUCTION = """\
# What the paper leaves open

The paper does not say how large its batches are, whether its losses are sums or means, how pixels
are scaled, whether the latent is taken after or before the last ReLU, how long it fine-tunes, or
how DSC-Net, from which it starts, was set. This page asks what each of these is worth: kSCN-S with
the preset `paper` on {samples} images, one thing changed against another by a design, labels
scoring every run and choosing none of its states. What the preset has on all 70,000 images stands
in [Ours beside the paper's](tables.md).

Written by `python benchmarks/paper_readings.py --page` from `results/paper_readings.json`; do not
edit. Scores are ACC / NMI in per cent. The paper has {paper}.
"""

STILL_TO_BE_MADE = """\
The runs are still to be made, by `python benchmarks/paper_readings.py`: no cell is measured yet.
"""

FACTORS_TEXT = """\
## The readings

The first level of each is what the preset `paper` takes: what the paper states, and where it states
nothing what a careful reader would take from its equations, its text or the code of the method that
it starts from.
"""

NOTES = """\
- *Summed or averaged over a batch* is no factor: Adam divides a gradient by its own size, so a
  constant before the whole loss changes nothing. What counts is the ratio of the two losses; means
  over the 784 pixels and the 80 numbers of the latent make the weight count 9.8 times as much.
- *Pixels from 0 to 255* are fed to the network as such. Both losses grow by the same factor, which
  again Adam does not see, but biases and the first steps are those of large numbers.
- *DSC-Net with published settings* has weights 1 and 0.01, 300 steps and the kernels of its authors
  for ten faces, and channels 10-20-30, dimension 9, a share of 0.1 and power 8, which a third party
  published for MNIST.
- *Length of pretraining*: the paper finds 200 epochs enough, and does not say what it took; k-means
  on the same latent is better after few.
"""


def write_page(cells: Cells, path: Path) -> None:
    """Write the page of all cells."""
    parts = [_introduction(cells), _factors(), NOTES, _effects(cells), _starts(cells)]
    parts += [_best(cells), _design(cells)]
    path.write_text("\n".join(part for part in parts if part), encoding="utf-8")
    print(f"wrote {path.name}")


def _introduction(cells: Cells) -> str:
    counts = {run["samples"] for run in cells.values()} or {10_000}
    samples = " or ".join(f"{count:,}" for count in sorted(counts))
    told = [f"{acc:.2f} / {nmi:.2f} on {TITLES[name]}" for name, (acc, nmi) in PAPER.items()]
    whole = "the 10,000 test" if counts == {10_000} else f"the first {samples} test"
    introduction = INTRODUCTION.format(samples=whole, paper=" and ".join(told))
    return introduction if cells else f"{introduction}\n{STILL_TO_BE_MADE}"


def _factors() -> str:
    rows = []
    for factor in FACTORS.values():
        first, *rest = factor.levels.values()
        says = "stated" if factor.stated else "left open"
        rows.append([factor.title, first, "; ".join(rest), says])
    head = ["what", "the preset takes", "beside it", "the paper"]
    return "\n".join([FACTORS_TEXT, *_table(head, rows, ":--"), ""])


# Effects ----------------------------------------------------------------------------------------


def _of_design(cells: Cells, dataset: str) -> list[tuple[Reading, Mapping[str, Any]]]:
    """Cells of the design that came to an end."""
    found = [(r, cells.get(readings.key(dataset, r, 0), {})) for r in readings.design()]
    return [(reading, run) for reading, run in found if "acc" in run]


def _fitted(cells: Cells) -> dict[tuple[str, str], readings.Effects]:
    """Effects by set and score, of the sets that have cells."""
    found = {}
    for dataset in PAPER:
        pairs = _of_design(cells, dataset)
        for score in SCORES if pairs else ():
            own, runs = zip(*pairs, strict=True)
            found[dataset, score] = readings.effects(own, [run[score] for run in runs])
    return found


def _effects(cells: Cells) -> str:
    fitted = _fitted(cells)
    lines = ["## What each is worth", ""]
    if not fitted:
        return "\n".join([*lines, "No cell has been measured yet.", ""])
    counts = {TITLES[name]: len(_of_design(cells, name)) for name in PAPER}
    told = ", ".join(f"{count} of {readings.RUNS} on {name}" for name, count in counts.items())
    lines += [
        "Main effects in points: the second level minus the first, over the runs of a fractional "
        f"factorial with seed 0 ({told}). In half of the runs a factor has its first level, in "
        "half its second, and everything else is balanced between the halves; an interaction of "
        "two factors is not told from the effect of a third.",
        "",
    ]
    fitted = {where: one for where, one in fitted.items() if one.complete}
    if not fitted:
        few = "These are too few cells to tell the factors from each other; the runs are below."
        return "\n".join([*lines, few, ""])
    heads = [f"{TITLES[name]} {score.upper()}" for name, score in fitted]
    rows = []
    for name, factor in FACTORS.items():
        if len(factor.levels) > 2:
            continue
        first, second = factor.levels.values()
        what = f"{factor.title}: {_short(second)} instead of {_short(first)}"
        rows.append([what, *(tenths(one.difference(name), "+") for one in fitted.values())])
    errors = ["-" if one.error is None else tenths(one.error) for one in fitted.values()]
    rows.append(["standard error of a difference", *errors])
    return "\n".join([*lines, *_table(["what", *heads], rows), ""])


def tenths(value: float, sign: str = "") -> str:
    """A number with one digit, the same on every machine: halves are not decided by rounding."""
    return f"{round(round(float(value), 6), 1) + 0.0:{sign}.1f}"  # no minus before a zero


def _short(text: str) -> str:
    return text.split(":")[0].split(",")[0].split(";")[0]


def _starts(cells: Cells) -> str:
    fitted = {where: one for where, one in _fitted(cells).items() if one.complete}
    if not fitted:
        return ""
    heads = [f"{TITLES[name]} {score.upper()}" for name, score in fitted]
    rows = []
    for level, what in FACTORS["start"].levels.items():
        cell = [tenths(one.mean + one.of["start"][level]) for one in fitted.values()]
        before = [_mean_start(cells, name, level, score) for name, score in fitted]
        told = [f"{end} (from {first})" for end, first in zip(cell, before, strict=True)]
        rows.append([f"{level}: {what}", *told])
    text = "Mean over the design by start, and in brackets what the start itself has:"
    return "\n".join([text, "", *_table(["start", *heads], rows), ""])


def _mean_start(cells: Cells, dataset: str, level: Any, score: str) -> str:
    runs = [run for own, run in _of_design(cells, dataset) if own["start"] == level]
    return tenths(np.mean([run["start"][score] for run in runs])) if runs else "-"


# Readings with several seeds --------------------------------------------------------------------


def _several(cells: Cells) -> list[tuple[Reading, dict[str, list[Mapping[str, Any]]]]]:
    """Readings with more than one seed on some set, and their runs by set."""
    found: list[tuple[Reading, dict[str, list[Mapping[str, Any]]]]] = []
    for run in cells.values():
        known = next((runs for reading, runs in found if reading == run["reading"]), None)
        if known is None:
            known = {}
            found.append((dict(run["reading"]), known))
        if "acc" in run:
            known.setdefault(run["set"], []).append(run)
    return [
        (reading, runs)
        for reading, runs in found
        if any(len(of_set) > 1 for of_set in runs.values())
    ]


def distance(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> float:
    """Mean points by which a reading is below the paper, over sets and scores."""
    below = [
        max(0.0, paper - float(np.mean([run[score] for run in runs[name]])))
        for name, figures in PAPER.items()
        if name in runs
        for score, paper in zip(SCORES, figures, strict=True)
    ]
    return float(np.mean(below))


def _best(cells: Cells) -> str:
    several = sorted(_several(cells), key=lambda pair: distance(pair[1]))
    lines = ["## The best few, with several seeds", ""]
    if not several:
        return "\n".join([*lines, "Not measured yet.", ""])
    rows = [
        [
            readings.departures(reading),
            "yes" if readings.honest(reading) else "no",
            *(_spread(runs.get(name, [])) for name in PAPER),
            tenths(distance(runs)),
        ]
        for reading, runs in several
    ]
    head = ["reading, as it differs from the preset", "honest", *TITLES.values(), "below the paper"]
    lines += [
        "One reading for both sets, as the paper has one method: the preset's, the best of the "
        "design, and those that the main effects add up to. *Honest* is a reading that contradicts "
        "nothing the paper states. Mean ± standard deviation; the last column is the mean of "
        "the points below the paper, 0 where a figure is reached.",
        "",
        *_table(head, rows),
        "",
    ]
    nearest = next((reading for reading, _ in several if readings.honest(reading)), None)
    if nearest is not None:
        told = readings.departures(nearest)
        same = "It is the preset's own" if told == "as the preset" else f"It differs in: {told}"
        lines += [f"**The best honest reading** is the first of these with a *yes*. {same}.", ""]
    return "\n".join(lines)


def _spread(runs: Sequence[Mapping[str, Any]]) -> str:
    if not runs:
        return "-"
    scores = [[run[score] for run in runs] for score in SCORES]
    told = [f"{tenths(np.mean(values))} ± {tenths(np.std(values))}" for values in scores]
    return f"{' / '.join(told)} ({len(runs)})"


def _design(cells: Cells) -> str:
    rows = []
    for reading in readings.design():
        runs = [cells.get(readings.key(name, reading, 0), {}) for name in PAPER]
        rows.append([readings.departures(reading), *map(_cell, runs)])
    lines = ["## Every run of the design", "", "ACC / NMI with seed 0, and of the start.", ""]
    return "\n".join([*lines, *_table(["reading", *TITLES.values()], rows), ""])


def _cell(run: Mapping[str, Any]) -> str:
    if "failed" in run:
        return "failed: " + str(run["failed"]).split(";")[0].replace("|", "/")
    if "acc" not in run:
        return "-"
    start = run["start"]
    return f"{run['acc']:.1f} / {run['nmi']:.1f} from {start['acc']:.1f} / {start['nmi']:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str = "--:") -> list[str]:
    lines = [head, [":--", *[align] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
