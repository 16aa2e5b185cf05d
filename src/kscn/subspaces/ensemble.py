"""Many cheap runs on a subsample, and the clustering that the best of them have in common.

On hard data the objective ties: dozens of minima lie within a percent of the lowest, and among them
it says little about which clustering is right. Single runs then differ by ten points of accuracy.
What the lowest ones agree on varies far less: every run has its accidents (a group split in two,
two groups merged), but seldom the same ones.

Where they do not agree, the objective ties between clusterings of different kinds, and neither it
nor a vote finds the right one. Groups that were merged make a large cluster, and groups that were
split make small ones, so the run is the better one that has the lower objective once its clusters
are made even (kscn.subspaces.prices) and its subspaces have followed them. Sizes alone tell less:
not how far it is to even ones.

How much the runs agree also says how well the data, in this representation and with subspaces of
this dimension, supports a clustering at all. That is a way to choose between representations
without labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from kscn.subspaces.bases import Subspaces
from kscn.subspaces.prices import even_cost, even_labels
from kscn.subspaces.search import (
    Candidates,
    Problem,
    initial_candidates,
    mutual_information,
    sweep,
)
from kscn.subspaces.update import ScatterSums

# A run ends when a burst of sweeps lowers its objective by less than a share STILL.
BURST, BURSTS = 8, 12
STILL = 2e-4
VOTE_ITERATIONS = 20
# Rounds of subspaces and even clusters.
EVEN_SWEEPS = 10

Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Agreed:
    """What the best runs have in common.

    Attributes
    ----------
    labels : Tensor, shape (m,)
        The clustering that they agree on best.
    share : Tensor, shape (m,)
        Share of the best runs that put a sample where most of the samples of its cluster are.
    agreement : float
        Mean normalised mutual information between two of the best runs.
    objective : float
        The lowest of all runs, as a share of the samples' squared norms.
    runs : list of Candidates
        Where every run ended, by rising objective.
    best : list of Tensor, shape (m,) each
        The clusters of those that were combined.
    """

    labels: Tensor
    share: Tensor
    agreement: float
    objective: float
    runs: list[Candidates] = field(repr=False)
    best: list[Tensor] = field(repr=False)

    def alternatives(self) -> list[Agreed]:
        """The same with what the best runs agree on, and then with each of them alone."""
        return [self, *(replace(self, labels=run) for run in self.best)]


def agree(
    problem: Problem,
    starts: int,
    kept: int,
    init: str = "k-means",
    report: Report = lambda *_: None,
) -> Agreed:
    """Run k-subspaces `starts` times and combine the `kept` runs of the lowest objective.

    One run per core, without threads of its own. `report` hears (runs done, of how many, lowest
    objective). The result does not depend on timing.
    """
    seeds = torch.randint(2**62, (starts,), generator=problem.generator).tolist()

    def start(seed: int) -> Run:
        own = replace(problem, generator=torch.Generator().manual_seed(seed))
        return _run(own, initial_candidates(own, init, 1))

    ended = sorted(_side_by_side(start, seeds, problem, report), key=lambda run: run.objective)
    best = [run.labels for run in ended[:kept]]
    labels = consensus_labels(best, problem.k)
    lowest = ended[0].objective / _energy(problem)
    candidates = [run.candidate for run in ended]
    return Agreed(labels, support(labels, best), mean_agreement(best), lowest, candidates, best)


def settled(
    problem: Problem, runs: list[Candidates], report: Report = lambda *_: None
) -> list[Tensor]:
    """Bring runs to an end on more samples: their clusters.

    Parameters
    ----------
    problem : Problem
        More samples than the runs have seen.
    runs : list of Candidates
        Where they stand.
    report : callable
        Hears (runs done, of how many, lowest objective).
    """
    ended = _side_by_side(lambda run: _run(problem, run), runs, problem, report)
    return [run.labels for run in ended]


def even_labels_near(problem: Problem, labels: Tensor) -> Tensor:
    """Clusters (m,) of the same size near given ones, with subspaces that are fitted to them."""
    for _ in range(EVEN_SWEEPS):
        labels = even_labels(fitted(problem, labels).residuals(problem.z))
    return labels


def cost_near(problem: Problem, common: Problem, labels: Tensor) -> float:
    """What the even clusters near those of a run cost.

    Parameters
    ----------
    problem : Problem
        Where the run was made.
    common : Problem
        The same samples, in the space in which clusters are compared.
    labels : Tensor, shape (m,)
        Their clusters.
    """
    even = even_labels_near(problem, labels)
    return even_cost(fitted(common, even).residuals(common.z))


def fitted(problem: Problem, labels: Tensor) -> Subspaces:
    """The subspaces of given clusters."""
    sums = ScatterSums(problem.k, problem.z.shape[1], problem.affine, problem.z.device)
    sums.add(problem.z.double(), labels)
    return sums.subspaces(problem.dims).to(problem.z.dtype, problem.z.device)


@dataclass(frozen=True)
class Run:
    """Where a run ended."""

    objective: float
    labels: Tensor
    candidate: Candidates


def _side_by_side(
    work: Callable[[Any], Run], inputs: Sequence[Any], problem: Problem, report: Report
) -> list[Run]:
    """One run per core, without threads of its own; in the order of the inputs."""
    threads = torch.get_num_threads()
    energy = _energy(problem)

    def alone(given: Any) -> Run:
        torch.set_num_threads(1)  # of this thread
        return work(given)

    ended: list[Run] = []
    lowest = float("inf")
    pool = ThreadPoolExecutor(min(threads, len(inputs)))
    try:
        for run in pool.map(alone, inputs):
            ended.append(run)
            lowest = min(lowest, run.objective / energy)
            report(len(ended), len(inputs), lowest)
    finally:  # also on Ctrl-C
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # new threads take the number that was set last
    return ended


def _energy(problem: Problem) -> float:
    return float(problem.norms.double().sum()) or 1.0


def _run(problem: Problem, candidate: Candidates) -> Run:
    """A start, swept until it stands still."""
    before = float("inf")
    for _ in range(BURSTS):
        candidate, objective = sweep(problem, candidate, BURST)
        now = float(objective)
        if before - now < STILL * now:
            break
        before = now
    offsets = None if candidate.offsets is None else candidate.offsets[0]
    labels = Subspaces(candidate.bases[0], offsets).assign(problem.z)[0]
    return Run(now, labels, candidate)


def consensus_labels(runs: list[Tensor], k: int) -> Tensor:
    """The clustering that the runs have in common, shape (m,).

    It begins at the run that agrees best with the others. Every sample is described by its clusters
    in all runs, so that two samples are as far apart as there are runs that separate them (and no
    run has to be aligned with another); k-means from there moves the samples that this one run has
    put where the others do not.
    """
    votes = torch.cat([torch.nn.functional.one_hot(run.long(), k) for run in runs], dim=1).float()
    agreement = [sum(mutual_information(one, other) for other in runs) for one in runs]
    labels = runs[max(range(len(runs)), key=lambda i: round(agreement[i], 9))].long()
    for _ in range(VOTE_ITERATIONS):
        count = torch.bincount(labels, minlength=k)
        means = votes.new_zeros(k, votes.shape[1]).index_add_(0, labels, votes)
        means /= count.clamp(min=1)[:, None]
        score = 2 * votes @ means.mT - means.square().sum(dim=1)
        moved = score.masked_fill(count == 0, -torch.inf).argmax(dim=1)
        if torch.equal(moved, labels):
            break
        labels = moved
    return labels


def support(labels: Tensor, runs: list[Tensor]) -> Tensor:
    """Share of runs in which a sample is where most of its cluster is, shape (m,)."""
    held = torch.zeros(len(labels), device=labels.device)
    for run in runs:
        width = int(run.max()) + 1
        joint = torch.bincount(labels * width + run, minlength=(int(labels.max()) + 1) * width)
        home = joint.view(-1, width).argmax(dim=1)  # of each cluster, in this run
        held += home[labels] == run
    return held / len(runs)


def mean_agreement(runs: list[Tensor]) -> float:
    """Mean normalised mutual information over all pairs; 1 for a single run."""
    pairs = [
        mutual_information(one, other) for i, one in enumerate(runs) for other in runs[i + 1 :]
    ]
    return sum(pairs) / len(pairs) if pairs else 1.0
