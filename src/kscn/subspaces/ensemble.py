"""Many cheap runs on a subsample, and the clustering that the best of them have in common.

On hard data the objective ties: dozens of minima lie within a percent of the lowest, and among them
it says little about which clustering is right. Single runs then differ by ten points of accuracy.
What the lowest ones agree on varies far less: every run has its accidents (a group split in two,
two groups merged), but seldom the same ones.

How much the runs agree also says how well the data, in this representation and with subspaces of
this dimension, supports a clustering at all. That is a way to choose between representations
without labels.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kscn.subspaces.bases import Subspaces
from kscn.subspaces.search import Problem, initial_candidates, mutual_information, sweep

# A run ends when a burst of sweeps lowers its objective by less than a share STILL.
BURST, BURSTS = 8, 12
STILL = 2e-4
VOTE_ITERATIONS = 20

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
    """

    labels: Tensor
    share: Tensor
    agreement: float
    objective: float


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
    threads = torch.get_num_threads()
    seeds = torch.randint(2**62, (starts,), generator=problem.generator).tolist()
    energy = float(problem.norms.double().sum()) or 1.0

    def run(seed: int) -> tuple[float, Tensor]:
        torch.set_num_threads(1)  # of this thread
        own = replace(problem, generator=torch.Generator().manual_seed(seed))
        return _run(own, init)

    ended: list[tuple[float, Tensor]] = []
    lowest = float("inf")
    pool = ThreadPoolExecutor(min(threads, starts))
    try:
        for objective, labels in pool.map(run, seeds):
            ended.append((objective, labels))
            lowest = min(lowest, objective / energy)
            report(len(ended), starts, lowest)
    finally:  # also on Ctrl-C
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # new threads take the number that was set last
    best = [labels for _, labels in sorted(ended, key=lambda entry: entry[0])[:kept]]
    labels = consensus_labels(best, problem.k)
    return Agreed(labels, support(labels, best), mean_agreement(best), lowest)


def _run(problem: Problem, init: str) -> tuple[float, Tensor]:
    """One start, swept until it stands still: its objective and labels."""
    candidate = initial_candidates(problem, init, 1)
    before = float("inf")
    for _ in range(BURSTS):
        candidate, objective = sweep(problem, candidate, BURST)
        now = float(objective)
        if before - now < STILL * now:
            break
        before = now
    offsets = None if candidate.offsets is None else candidate.offsets[0]
    return now, Subspaces(candidate.bases[0], offsets).assign(problem.z)[0]


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
        means = torch.zeros(k, votes.shape[1]).index_add_(0, labels, votes)
        means /= count.clamp(min=1)[:, None]
        score = 2 * votes @ means.mT - means.square().sum(dim=1)
        moved = score.masked_fill(count == 0, -torch.inf).argmax(dim=1)
        if torch.equal(moved, labels):
            break
        labels = moved
    return labels


def support(labels: Tensor, runs: list[Tensor]) -> Tensor:
    """Share of runs in which a sample is where most of its cluster is, shape (m,)."""
    held = torch.zeros(len(labels))
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
