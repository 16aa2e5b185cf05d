"""Readings of the paper: what it leaves open as factors, a design over them, and their effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
Reading = dict[str, Any]


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


def everything() -> list[Reading]:
    """All combinations of levels."""
    names, levels = list(FACTORS), [list(factor.levels) for factor in FACTORS.values()]
    return [dict(zip(names, values, strict=True)) for values in product(*levels)]


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
    """Main effects on one score, by least squares over the cells that are there.

    Attributes
    ----------
    mean : float
        Over the design.
    of : mapping
        Factor -> level -> what it adds to the mean; the levels of a factor add up to zero.
    error : float or None
        Standard error of the difference of the two levels of a factor; None where there are no
        cells to spare for it.
    complete : bool
        Whether there are cells enough to tell all factors from each other. Before that, what they
        could share is shared between them.
    """

    mean: float
    of: Mapping[str, Mapping[Any, float]]
    error: float | None
    complete: bool

    def difference(self, name: str) -> float:
        """The second level minus the first."""
        first, second = list(FACTORS[name].levels)[:2]
        return self.of[name][second] - self.of[name][first]

    def predicted(self, reading: Reading) -> float:
        """What the effects add up to."""
        return self.mean + sum(self.of[name][reading[name]] for name in FACTORS)


def effects(readings: Sequence[Reading], scores: Sequence[float]) -> Effects:
    """Main effects of all factors on scores of readings, at least one of them."""
    rows = np.array([_coded(reading) for reading in readings])
    values = np.asarray(scores, dtype=float)
    # The mean first: where cells are few, the smallest solution would be one of a smaller mean.
    middle = values.mean()
    found, _, rank, _ = np.linalg.lstsq(rows, values - middle, rcond=None)
    spare = len(values) - rank
    left = values - middle - rows @ found
    complete = bool(rank == rows.shape[1])
    error = None
    if spare > 0 and complete:
        # In the whole design each level has half of the runs: var(difference) = 4 s^2 / runs.
        error = float(2 * np.sqrt((left**2).sum() / spare / len(values)))
    of: dict[str, dict[Any, float]] = {}
    place = 1
    for name, factor in FACTORS.items():
        free = len(factor.levels) - 1
        part = found[place : place + free]
        place += free
        values_of = [*part, -part.sum()]
        of[name] = dict(zip(factor.levels, map(float, values_of), strict=True))
    return Effects(float(middle + found[0]), of, error, complete)


def _coded(reading: Reading) -> NDArray:
    """A row of the regression: sum contrasts, the last level of a factor being -1."""
    row = [1.0]
    for name, factor in FACTORS.items():
        levels = list(factor.levels)
        place = levels.index(reading[name])
        if place == len(levels) - 1:
            row += [-1.0] * (len(levels) - 1)
        else:
            row += [float(i == place) for i in range(len(levels) - 1)]
    return np.array(row)


def candidates(found: Sequence[tuple[Reading, float]], best: int) -> list[Reading]:
    """The readings worth several seeds: the best predicted, the best measured, the preset's.

    Parameters
    ----------
    found : sequence of (reading, score)
        The cells of the design; the score is a mean over all sets, because the paper has one
        method for both.
    best : int
        How many of the measured ones.
    """
    ordered = sorted(found, key=lambda pair: -pair[1])
    fitted = effects(*zip(*found, strict=True))
    pool = everything()
    chosen = [max(filter(honest, pool), key=fitted.predicted), max(pool, key=fitted.predicted)]
    chosen += [*(reading for reading, _ in ordered[:best]), design()[0]]
    return [reading for i, reading in enumerate(chosen) if reading not in chosen[:i]]
