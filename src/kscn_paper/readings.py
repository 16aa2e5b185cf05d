"""What the paper leaves open: the readings of it as factors, a design over them, their effects.

`benchmarks/paper/readings.py` makes the runs; `page` writes what they say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.errors import DataError
from kscn_paper.tables import table

Cells = Mapping[str, Mapping[str, Any]]
Reading = dict[str, Any]
# What the paper has on the 10,000 test images, ACC and NMI.
PAPER = {"mnist-test": (83.30, 77.38), "fashion-mnist-test": (60.02, 62.30)}


@dataclass(frozen=True)
class Factor:
    """Something that can be read in more than one way.

    Attributes
    ----------
    title : str
        What it is.
    levels : mapping
        Value -> what it means. The first one is what the preset `paper` has.
    stated : bool
        Whether the paper states the first level, so that another one contradicts it.
    column : tuple of int
        The bits of a run's number whose sum (modulo 2) is its level; empty for the start, which
        has four levels and takes the first two bits.
    """

    title: str
    levels: Mapping[Any, str]
    stated: bool
    column: tuple[int, ...]


# A fractional factorial of 16 runs: bits 0 and 1 are the start, the other columns sums of bits of
# which none equals another, the start or the sum of its bits. Main effects are clear of each other
# and mixed with interactions of two factors. Run 0 has the first level of everything.
FACTORS = {
    "start": Factor(
        "start",
        {
            "dsc": "self-expression of 2,000 latents in closed form, its subspaces take the rest",
            "dsc-net": "DSC-Net trained on 2,000 images with published settings, likewise",
            "k-means": "k-means on all latents",
            "spectral": "spectral clustering of 2,000 latents, its subspaces take the rest",
        },
        False,
        (),
    ),
    "batch": Factor("batch size", {256: "256", 64: "64"}, False, (2,)),
    "losses": Factor(
        "losses",
        {
            "sum": "summed over the numbers of a sample, as in the equations",
            "mean": "both averaged over their numbers: the weight counts 784 / 80 times as much",
        },
        True,
        (0, 1, 2),
    ),
    "pixels": Factor("pixels", {1: "from 0 to 1", 255: "from 0 to 255"}, False, (3,)),
    "latent": Factor(
        "latent",
        {"after": "after the last ReLU", "before": "before it; the decoder applies it"},
        False,
        (0, 1, 3),
    ),
    "pretraining": Factor("pretraining", {200: "200 epochs", 30: "30 epochs"}, False, (0, 2, 3)),
    "rate": Factor(
        "learning rate of the alternation", {1e-3: "0.001", 1e-4: "0.0001"}, True, (1, 2, 3)
    ),
    "epochs": Factor("epochs of the alternation", {100: "100", 20: "20"}, False, (0, 3)),
    "trim": Factor("trimming", {0.1: "the farthest 10 %", 0.0: "none"}, True, (1, 2)),
}
RUNS = 16


def design() -> list[Reading]:
    """The readings of the fractional factorial; the first is the preset's."""
    return [_reading(number) for number in range(RUNS)]


def _reading(number: int) -> Reading:
    bits = [number >> shift & 1 for shift in range(4)]
    found = {}
    for name, factor in FACTORS.items():
        place = sum(bits[i] for i in factor.column) % 2 if factor.column else bits[0] + 2 * bits[1]
        found[name] = list(factor.levels)[place]
    return found


def honest(reading: Reading) -> bool:
    """Whether a reading contradicts nothing that the paper states."""
    return all(
        reading[name] == next(iter(factor.levels))
        for name, factor in FACTORS.items()
        if factor.stated
    )


def departures(reading: Reading) -> str:
    """How a reading differs from the preset."""
    told = [
        f"{factor.title} {factor.levels[reading[name]]}"
        if name not in ("start", "losses", "latent")
        else f"{factor.title}: {reading[name]}"
        for name, factor in FACTORS.items()
        if reading[name] != next(iter(factor.levels))
    ]
    return "; ".join(told) or "as the preset"


def key(dataset: str, reading: Reading, seed: int) -> str:
    """The name of a cell."""
    return " ".join([dataset, *(f"{n}={reading[n]}" for n in FACTORS), f"seed={seed}"])


# Effects ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effects:
    """Main effects on one score, by least squares over a design of which no run is missing.

    Attributes
    ----------
    mean : float
        Over the design.
    of : mapping
        Factor -> level -> what it adds to the mean; the levels of a factor add up to zero.
    error : float
        Standard error of the difference of the two levels of a factor.
    """

    mean: float
    of: Mapping[str, Mapping[Any, float]]
    error: float

    def difference(self, name: str) -> float:
        """The second level minus the first."""
        first, second = list(FACTORS[name].levels)[:2]
        return self.of[name][second] - self.of[name][first]

    def predicted(self, reading: Reading) -> float:
        """What the effects add up to."""
        return self.mean + sum(self.of[name][reading[name]] for name in FACTORS)


def effects(readings: Sequence[Reading], scores: Sequence[float]) -> Effects:
    """Main effects of all factors on scores of readings, one of each in the design."""
    rows = np.array([_coded(reading) for reading in readings])
    values = np.asarray(scores, dtype=float)
    found, _, rank, _ = np.linalg.lstsq(rows, values, rcond=None)
    left = values - rows @ found
    # In the whole design each level has half of the runs: var(difference) = 4 s^2 / runs.
    error = float(2 * np.sqrt((left**2).sum() / (len(values) - rank) / len(values)))
    of: dict[str, dict[Any, float]] = {}
    place = 1
    for name, factor in FACTORS.items():
        part = found[place : place + len(factor.levels) - 1]
        place += len(part)
        of[name] = dict(zip(factor.levels, map(float, [*part, -part.sum()]), strict=True))
    return Effects(float(found[0]), of, error)


def _coded(reading: Reading) -> NDArray:
    """A row of the regression: sum contrasts, the last level of a factor being -1."""
    row = [1.0]
    for name, factor in FACTORS.items():
        *free, last = factor.levels
        row += [-1.0 if reading[name] == last else float(reading[name] == one) for one in free]
    return np.array(row)


# The page ---------------------------------------------------------------------------------------

TITLES = {"mnist-test": "MNIST", "fashion-mnist-test": "Fashion-MNIST"}
SCORES = ("acc", "nmi")
# Pairs of a set and a score, as columns of tables.
COLUMNS = [(dataset, score) for dataset in PAPER for score in SCORES]

INTRODUCTION = """\
# What the paper leaves open

The paper does not say how large its batches are, whether its losses are sums or means, how pixels
are scaled, whether the latent is taken after or before the last ReLU, how long it fine-tunes, or
how DSC-Net, from which it starts, was set. This page asks what each of these is worth: kSCN-S with
the preset `paper` on the 10,000 test images, one thing changed against another by a design, labels
scoring every run and choosing none of its states. What the preset has on all 70,000 images stands
in [Ours beside the paper's](tables.md).

Written by `python -m kscn_paper readings` from `results/paper/paper_readings.json`, which
`python benchmarks/paper/readings.py` measures; do not edit. Scores are ACC / NMI in per cent. The
paper has {paper}.

## The readings

The first level of each is what the preset `paper` takes: what the paper states, and where it states
nothing what a careful reader would take from its equations, its text or the code of the method that
it starts from.
"""

NOTES = """
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

## What each is worth

Main effects in points: the second level minus the first, over the 16 runs of a fractional factorial
with seed 0. In half of the runs a factor has its first level, in half its second, and everything
else is balanced between the halves; an interaction of two factors is not told from the effect of a
third.
"""

BEST = """
## The best few, with several seeds

One reading for both sets, as the paper has one method: the preset's, the best of the design, and
those that the main effects add up to. *Honest* is a reading that contradicts nothing the paper
states. Mean ± standard deviation; the last column is the mean of the points below the paper, 0
where a figure is reached.
"""


def page(cells: Cells) -> str:
    """The page of the cells of the design and of the readings with several seeds.

    Raises
    ------
    DataError
        When a run of the design is missing.
    """
    wanted = {key(dataset, reading, 0) for dataset in PAPER for reading in design()}
    missing = wanted - {*cells}
    if missing:
        raise DataError(
            f"{len(missing)} of {len(wanted)} runs of the design are missing; "
            "`python benchmarks/paper/readings.py` makes them."
        )
    told = [f"{acc:.2f} / {nmi:.2f} on {TITLES[name]}" for name, (acc, nmi) in PAPER.items()]
    lines = [INTRODUCTION.format(paper=" and ".join(told)), *_factors(), NOTES]
    lines += [*_effects(cells), "", BEST, *_best(cells), ""]
    lines += ["## Every run of the design", "", "ACC / NMI with seed 0, and of the start.", ""]
    rows = [
        [departures(reading), *(_cell(cells[key(name, reading, 0)]) for name in PAPER)]
        for reading in design()
    ]
    return "\n".join([*lines, *table(["reading", *TITLES.values()], rows)]) + "\n"


def _factors() -> list[str]:
    rows = []
    for factor in FACTORS.values():
        first, *rest = factor.levels.values()
        says = "stated" if factor.stated else "left open"
        rows.append([factor.title, first, "; ".join(rest), says])
    return table(["what", "the preset takes", "beside it", "the paper"], rows, ":--")


def _ended(cells: Cells, dataset: str) -> list[tuple[Reading, Mapping[str, Any]]]:
    """Runs of the design that did not fail."""
    found = [(reading, cells[key(dataset, reading, 0)]) for reading in design()]
    return [(reading, run) for reading, run in found if "acc" in run]


def _effects(cells: Cells) -> list[str]:
    """Tables of the effects of factors with two levels, and of the starts."""
    fitted = {}
    for dataset, score in COLUMNS:
        readings, runs = zip(*_ended(cells, dataset), strict=True)
        fitted[dataset, score] = effects(readings, [run[score] for run in runs])
    heads = [f"{TITLES[dataset]} {score.upper()}" for dataset, score in COLUMNS]
    rows = []
    for name, factor in FACTORS.items():
        if len(factor.levels) > 2:
            continue
        first, second = map(_short, factor.levels.values())
        what = f"{factor.title}: {second} instead of {first}"
        rows.append([what, *(tenths(one.difference(name), "+") for one in fitted.values())])
    rows.append(["standard error of a difference", *(tenths(one.error) for one in fitted.values())])
    lines = [*table(["what", *heads], rows), ""]
    lines += ["Mean over the design by start, and in brackets what the start itself has:", ""]
    starts = []
    for level, what in FACTORS["start"].levels.items():
        row = [f"{level}: {what}"]
        for dataset, score in COLUMNS:
            one = fitted[dataset, score]
            own = [run["start"][score] for r, run in _ended(cells, dataset) if r["start"] == level]
            row.append(f"{tenths(one.mean + one.of['start'][level])} (from {tenths(fmean(own))})")
        starts.append(row)
    return [*lines, *table(["start", *heads], starts)]


def tenths(value: float, sign: str = "") -> str:
    """A number with one digit, the same on every machine: halves are not decided by rounding."""
    return f"{round(round(float(value), 6), 1) + 0.0:{sign}.1f}"  # no minus before a zero


def _short(text: str) -> str:
    return text.split(":")[0].split(",")[0].split(";")[0]


def _best(cells: Cells) -> list[str]:
    """The readings with more than one seed, those nearest to the paper first."""
    several: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for run in cells.values():
        if "acc" in run:
            name = departures(run["reading"])
            several.setdefault(name, {}).setdefault(run["set"], []).append(run)
    several = {name: runs for name, runs in several.items() if max(map(len, runs.values())) > 1}
    rows, nearest = [], None
    for name, runs in sorted(several.items(), key=lambda pair: distance(pair[1])):
        faithful = honest(next(iter(runs.values()))[0]["reading"])
        nearest = nearest or (name if faithful else None)
        spreads = [_spread(runs[dataset]) for dataset in PAPER]
        rows.append([name, "yes" if faithful else "no", *spreads, tenths(distance(runs))])
    head = ["reading, as it differs from the preset", "honest", *TITLES.values(), "below the paper"]
    own = nearest == "as the preset"
    same = "It is the preset's own" if own else f"It differs in: {nearest}"
    last = f"**The best honest reading** is the first of these with a *yes*. {same}."
    return [*table(head, rows), "", last]


def distance(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> float:
    """Mean points by which a reading is below the paper, over sets and scores."""
    return fmean(
        max(0.0, paper - fmean(run[score] for run in runs[name]))
        for name, figures in PAPER.items()
        for score, paper in zip(SCORES, figures, strict=True)
    )


def _spread(runs: Sequence[Mapping[str, Any]]) -> str:
    scores = [[run[score] for run in runs] for score in SCORES]
    told = [f"{tenths(fmean(values))} ± {tenths(pstdev(values))}" for values in scores]
    return f"{' / '.join(told)} ({len(runs)})"


def _cell(run: Mapping[str, Any]) -> str:
    if "failed" in run:
        return "failed: " + str(run["failed"]).split(";")[0].replace("|", "/")
    start = run["start"]
    return f"{run['acc']:.1f} / {run['nmi']:.1f} from {start['acc']:.1f} / {start['nmi']:.1f}"
