"""How many subspaces, and of which dimension: what the data itself says, with a measure of doubt.

Nothing here can know the truth. Two kinds of evidence are gathered on a subsample, without labels:

- *stability*. Two halves of the samples are clustered apart; each result labels the other half,
  and the adjusted Rand index tells how far the two agree. Structure is found twice, accidents are
  not. The same is done with normal noise of the same mean and covariance, which has no groups: a
  stability that noise reaches too is no evidence.
- *the spectrum* of the clusters. Where a subspace ends, the eigenvalues of its members drop to
  the level of the noise.

The scan looks at a coarse grid first, then at every k for the best few p, then at every p for the
best k. The best few cells are judged again on new halves, because the best of many is partly
lucky.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from kscn.data import as_source
from kscn.errors import InputError
from kscn.experiments.scaninput import RULES, checked_grid, components, noise_like, split
from kscn.runtime.device import chosen
from kscn.subspaces import ScatterSums, Subspaces
from kscn.subspaces.dimension import DIMENSION, energy_dims
from kscn.subspaces.search import Effort, Problem, run_chain

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Cell:
    """One number of clusters and one dimension, tried on two halves.

    Attributes
    ----------
    k, p : int
        Clusters and dimension of the subspaces.
    stability : float
        Adjusted Rand index of the two halves' results, between about 0 and 1.
    residual : float
        Share of the energy of samples that a result has not seen outside of their subspaces.
    objective : float
        The same share for the samples that it was fitted to.
    """

    k: int
    p: int
    stability: float
    residual: float
    objective: float


@dataclass(frozen=True)
class Scan:
    """What `scan` found.

    Attributes
    ----------
    k, p : int
        The recommendation.
    confidence : str
        "low", "medium" or "high".
    reasons : tuple of str
        Why, in words.
    cells : tuple of Cell
        All that was tried, in the order of k and p.
    stability : float
        Of the recommendation, on new halves.
    noise_stability : float
        What normal noise of the same mean and covariance reaches there.
    spectrum : tuple of float
        Eigenvalues of the clusters at the recommendation, averaged, the largest being 1.
    spectrum_dims : tuple of int
        The dimension that the spectrum of each cluster speaks for.
    n_samples, n_components : int
        Samples and principal components looked at.
    energy : float
        Share of the samples' energy in these components.
    complete : bool
        Whether the time sufficed for all that was planned.
    seconds : float
        Time taken.
    """

    k: int
    p: int
    confidence: str
    reasons: tuple[str, ...]
    cells: tuple[Cell, ...]
    stability: float
    noise_stability: float
    spectrum: tuple[float, ...]
    spectrum_dims: tuple[int, ...]
    n_samples: int
    n_components: int
    energy: float
    complete: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def scan(
    X: Any,
    clusters: Sequence[int] | None = None,
    dims: Sequence[int] | None = None,
    *,
    n_samples: int = 1200,
    budget: float = 60.0,
    device: str = "auto",
    random_state: int = 0,
    progress: Progress = lambda *_: None,
) -> Scan:
    """Look for the number of subspaces and their dimension; labels are not asked for.

    Parameters
    ----------
    X : array-like, path or Source
        Vectors or images; images are vectors of pixels here.
    clusters, dims : sequence of int, optional
        What to try; by default 2 to 20 clusters and dimensions 1 to 12, as far as the data allows.
    n_samples : int
        How many samples to look at, drawn at random where there are more.
    budget : float
        Seconds after which nothing further is begun.
    device : str
        Torch device; "auto" takes a GPU when there is one.
    random_state : int
        For the same result again, if the time suffices.
    progress : callable, optional
        Called as ``progress(stage, done, total)``.
    """
    began = time.monotonic()
    if not budget > 0:
        raise InputError(f"budget is {budget}; give a positive number of seconds.")
    rng = np.random.default_rng(random_state)
    z, energy = components(as_source(X), n_samples, random_state, rng)
    clusters, dims = checked_grid(len(z), z.shape[1], clusters, dims)
    work = _Work(torch.from_numpy(z).to(chosen(device)), rng, progress, began, budget)
    _explore(work, clusters, dims)
    return Scan(
        **_recommendation(work, dims),
        cells=tuple(work.cells[key] for key in sorted(work.cells)),
        n_samples=len(z),
        n_components=z.shape[1],
        energy=energy,
        complete=work.complete,
        seconds=work.clock(),
    )


# Trying -----------------------------------------------------------------------------------------


@dataclass
class _Work:
    """The samples, what was tried, and the time that is left."""

    z: Tensor
    rng: np.random.Generator
    progress: Progress
    began: float
    budget: float
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    complete: bool = True

    def __post_init__(self) -> None:
        self.halves = split(self.z, self.rng)

    def clock(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.began

    def visit(self, keys: Iterable[tuple[int, int]], stage: str, until: float) -> None:
        """Try cells that have not been tried, as long as there is time."""
        new = [key for key in dict.fromkeys(keys) if key not in self.cells]
        for done, (k, p) in enumerate(new):
            if self.cells and self.clock() > until * self.budget:
                self.complete = False
                return
            self.progress(stage, done, len(new))
            self.cells[k, p] = _try(self.halves, k, p, self.rng)

    def stability(self, cell: Cell, z: Tensor) -> float:
        """The stability of a cell on new halves of samples."""
        return _try(split(z, self.rng), cell.k, cell.p, self.rng).stability

    def check(self, cell: Cell) -> tuple[float, float]:
        """Stability on new halves, of the samples and of noise like them."""
        ours, noise = [], []
        for _ in range(RULES.checks):
            ours.append(self.stability(cell, self.z))
            noise.append(self.stability(cell, noise_like(self.z, self.rng)))
            if self.clock() > self.budget:
                self.complete &= len(ours) == RULES.checks
                break
        return float(np.mean(ours)), float(np.mean(noise))

    def noise_reaches(self, cell: Cell, stability: float) -> bool:
        """Whether noise is ever as stable; draws end with the first that is."""
        for done in range(RULES.doubts):
            if self.clock() > self.budget:
                self.complete = False
                return False
            self.progress("noise again", done, RULES.doubts)
            if self.stability(cell, noise_like(self.z, self.rng)) >= stability:
                return True
        return False


def _try(halves: tuple[Tensor, Tensor], k: int, p: int, rng: np.random.Generator) -> Cell:
    found = [_fit(half, k, p, rng) for half in halves]
    agreements, seen, unseen = [], [], []
    for i, half in enumerate(halves):
        own, own_distance = found[i].assign(half)
        other, other_distance = found[1 - i].assign(half)
        agreements.append(adjusted_rand_score(own.cpu().numpy(), other.cpu().numpy()))
        energy = float(half.square().sum())
        seen.append(float(own_distance.sum()) / energy)
        unseen.append(float(other_distance.sum()) / energy)
    stability, residual, objective = (float(np.mean(v)) for v in (agreements, unseen, seen))
    return Cell(k, p, stability, residual, objective)


def _fit(z: Tensor, k: int, p: int, rng: np.random.Generator) -> Subspaces:
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    problem = Problem(z, None, torch.full((k,), p), affine=False, trim=0.0, generator=generator)
    effort = Effort(1, RULES.racers, RULES.rounds)
    return run_chain(problem, "k-means", effort, lambda _: None)[1]


def _explore(work: _Work, clusters: list[int], dims: list[int]) -> None:
    some_k = [k for k in clusters if k in RULES.coarse_k] if len(clusters) > 8 else clusters
    some_p = [p for p in dims if p in RULES.coarse_p] if len(dims) > 6 else dims
    coarse = [(k, p) for k in some_k for p in some_p]
    # In random order: a coarse grid that time cuts short has seen all corners.
    work.rng.shuffle(coarse)
    work.visit(coarse, "coarse grid", RULES.coarse_until)
    for cell in _best(work, "p")[: RULES.lines]:
        work.visit([(k, cell.p) for k in clusters], f"every k, p = {cell.p}", RULES.lines_until)
    for cell in _best(work, "k")[:1]:
        work.visit([(cell.k, p) for p in dims], f"every p, k = {cell.k}", RULES.lines_until)


def _best(work: _Work, axis: str) -> list[Cell]:
    """The most stable cell of each "k" or each "p", in falling order."""
    leaders: dict[int, Cell] = {}
    for cell in work.cells.values():
        leader = leaders.setdefault(getattr(cell, axis), cell)
        if cell.stability > leader.stability:
            leaders[getattr(cell, axis)] = cell
    return sorted(leaders.values(), key=lambda cell: -cell.stability)


# Judging ----------------------------------------------------------------------------------------


def _recommendation(work: _Work, dims: list[int]) -> dict[str, Any]:
    """The fields of a `Scan` that say what to take, how sure that is, and why."""
    best, checked, noise = _judge(work)
    spectra, votes = _spectra(work, best, max(dims))
    p, drop = _dimension(work, best, spectra, votes, dims)
    if p != best.p:
        best = work.cells[best.k, p]
        checked, noise = work.check(best)
    pooled = spectra.mean(dim=0)
    confidence, reasons = _verdict(work, best, checked, noise, drop, votes)
    return {
        "k": best.k,
        "p": p,
        "confidence": confidence,
        "reasons": reasons,
        "stability": checked,
        "noise_stability": noise,
        "spectrum": tuple((pooled / pooled[0].clamp(min=1e-300)).tolist()),
        "spectrum_dims": tuple(votes.tolist()),
    }


def _judge(work: _Work) -> tuple[Cell, float, float]:
    """The cell to recommend, its stability on new halves and that of noise.

    Of cells that are stable, and equally so, the one with the most clusters is taken: merged
    groups are often as stable as groups, while split ones are not.
    """
    judged: list[tuple[Cell, float, float]] = []
    for done, cell in enumerate(_best(work, "k")[: RULES.finalists]):
        if judged and work.clock() > work.budget:
            work.complete = False
            break
        work.progress("new halves, and noise", done, RULES.finalists)
        judged.append((cell, *work.check(cell)))
    best = max(judged, key=lambda entry: entry[1])
    tied = [entry for entry in judged if entry[1] >= max(best[1] - RULES.tie, RULES.fair)]
    return max(tied, key=lambda entry: entry[0].k, default=best)


def _spectra(work: _Work, cell: Cell, highest_p: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues of the clusters (k, d), and the dimension that each of them speaks for."""
    z = work.z.double()
    labels = _fit(work.z, cell.k, cell.p, work.rng).assign(work.z)[0]
    sums = ScatterSums(cell.k, z.shape[1], affine=False, device=z.device)
    sums.add(z, labels)
    size = sums.weight.clamp(min=1)[:, None]
    spectra = sums.spectra() / size
    # Even noise belongs to no direction; without it the rest of the spectrum is the subspace.
    tail = spectra[:, min(highest_p, spectra.shape[1] - 1) :]
    above = (spectra - tail.median(dim=1, keepdim=True).values).clamp(min=0)
    votes = energy_dims(above)
    # Images are positive: the first direction of a cluster is its mean, and the drop after that is
    # no end of a subspace.
    means = torch.zeros_like(spectra).index_add_(0, labels.long(), z) / size
    led = means.square().sum(dim=1) >= RULES.led_by_mean * spectra[:, 0]
    held = above.cumsum(dim=1) / above.sum(dim=1, keepdim=True).clamp(min=1e-300)
    enough = (held < DIMENSION.enough).sum(dim=1) + 1
    return spectra, torch.where(led & (votes == 1), enough, votes)


def _dimension(
    work: _Work, cell: Cell, spectra: Tensor, votes: Tensor, dims: list[int]
) -> tuple[int, float]:
    """The dimension to recommend, and the factor by which the eigenvalues drop after it."""
    voted = min(max(int(votes.median()), dims[0]), dims[-1])
    work.visit([(cell.k, voted)], "the dimension", np.inf)
    p = voted
    if work.cells[cell.k, voted].stability < cell.stability - 3 * RULES.tie:
        p = cell.p  # a drop in the spectrum of clusters that are not found again says little
    pooled = spectra.mean(dim=0)
    floor = 1e-9 * float(pooled.sum())
    return p, float((pooled[p - 1] + floor) / (pooled[p] + floor))


def _verdict(
    work: _Work, best: Cell, stability: float, noise: float, drop: float, votes: Tensor
) -> tuple[str, tuple[str, ...]]:
    """How far to trust the recommendation, and why."""
    reasons = [
        f"two halves of the data agree by {stability:.2f} on these clusters (1 is fully), "
        f"normal noise of the same shape by {noise:.2f}"
    ]
    agreeing = float((votes == best.p).double().mean())
    clear = drop >= DIMENSION.clear_drop and agreeing >= 0.5
    reasons.append(
        f"the eigenvalues of the clusters drop by a factor of {drop:.1f} after dimension {best.p}, "
        f"for which {agreeing:.0%} of them speak by themselves"
    )
    if not clear:
        held = f"dimension {int(votes.median())} holds most of the energy of a cluster"
        reasons.append(f"no dimension is the clear end of a subspace; {held}")
    rivals = [
        cell
        for cell in _best(work, "k")
        if cell.k != best.k and cell.stability >= best.stability - RULES.tie
    ]
    if rivals:
        others = sorted(cell.k for cell in rivals)
        most = RULES.named
        named = ", ".join(map(str, others[:most])) + (", ..." if len(others) > most else "")
        reasons.append(f"other numbers of clusters were as stable: {named}")
    beyond_noise = stability - noise >= RULES.excess and not work.noise_reaches(best, stability)
    if not work.complete:
        reasons.append("the time ended before all was tried; a larger budget may tell more")
    if not beyond_noise:
        reasons.append("noise without groups does as well or nearly so: no evidence of groups")
    fair = stability >= RULES.fair and beyond_noise
    larger = any(cell.k > best.k for cell in rivals)
    sure = fair and stability >= RULES.sure and clear and not larger and work.complete
    return "high" if sure else "medium" if fair else "low", tuple(reasons)
