"""Finding a good start on a subsample: races, and swaps from there.

Single runs of k-subspaces end in very different local minima, and a lower objective is a better
clustering far more often than not. So this is where the effort goes. One *chain* is

1. a race: several starts advance, the lowest objective wins. One sweep assigns every sample and
   replaces each basis by orth(A_i S_i), a power step on the scatter of its members, computed as
   Z^T (masked Z S): two large matrix products, no d x d sums, no eigendecompositions. A_i is
   positive semidefinite, so a power step never lowers the energy held and sweeps descend;
2. swaps: drop one subspace (one that is cheap to lose), put a new one around a badly served
   sample; sweep many such proposals, cull, sweep on, keep the best if it is lower. This leaves
   local minima that plain restarts share.

Chains are repeated. Of those whose objectives are tied for the lowest, the one that agrees best
with the others is the start.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kscn.parallel import side_by_side
from kscn.subspaces.bases import Subspaces
from kscn.subspaces.decompositions import orthonormal
from kscn.subspaces.seeding import draw_rows, local_subspaces, neighbourhood_members

# Some of these numbers were compared on digits.
RACERS, RACE_SWEEPS = 10, 15  # starts in a race, and sweeps until one wins
KMEANS_ITERATIONS = 10  # a start needs no more
LABEL_STEPS = 3  # power steps on given clusters
# Rounds of swaps in one chain, fewer after so many without improvement.
ROUNDS, PATIENCE = 12, 4
# Swaps proposed in a round, of which some are left after a few sweeps and get further ones. 40 and
# 10 of them took twice the time.
PROPOSALS, CULL_SWEEPS = 20, 2
SURVIVORS, FINAL_SWEEPS = 5, 8
ROUND_SWEEPS = PROPOSALS * CULL_SWEEPS + SURVIVORS * FINAL_SWEEPS
# Arithmetic granted per square of n_init, so that more chains may also be longer ones: a second or
# two for n_init = 2. Large problems get fewer chains and rounds, small ones end before.
BUDGET = 5e9
SIDE_BY_SIDE = 2.5  # times as much for a second chain, since two have a core each
MOST_CHAINS = 10_000  # however large n_init is: the seeds of all are drawn at once
# Objectives within this share of the lowest are tied, and with so many chains of the same
# clustering the search ends.
TIE, AGREED = 0.005, 3
KEPT = 1e-6  # share of its basis that keeps a cluster without members in its place

Report = Callable[[int, int, int, float], None]
Swept = tuple[Subspaces, float]  # and the objective at the last assignment
Ended = tuple[Subspaces, float, Tensor]  # and the labels of a chain


@contextmanager
def empty_clusters_allowed() -> Iterator[None]:
    """Let k-means find fewer clusters than it was asked for, without a warning.

    For functions that deal with empty clusters themselves. Filters of warnings are those of the
    whole process: they are set around threads, not in them.
    """
    from sklearn.exceptions import ConvergenceWarning  # here, since not every fit needs it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@dataclass
class Problem:
    """The subsample to cluster and what does not change during the search."""

    z: Tensor  # (m, d)
    weights: Tensor | None  # (m,)
    dims: Tensor  # (k,), on the CPU
    affine: bool
    trim: float
    generator: torch.Generator  # of the CPU: a seed means the same wherever z is
    # Columns that the effort goes by, if not z's: on COIL-20 more of it cost accuracy.
    width: int | None = None

    def __post_init__(self) -> None:
        self.norms = self.z.square().sum(dim=1)
        self.z_t = self.z.mT.contiguous()
        self.k, self.p = len(self.dims), int(self.dims.max())
        # A neighbourhood should be most of one cluster but little of the next.
        self.neighbours = max(self.p + 2, len(self.z) // (3 * self.k))
        columns = self.width or self.z.shape[1]
        self.sweep_cost = 4.0 * len(self.z) * columns * self.k * self.p  # multiply-adds count twice


@empty_clusters_allowed()
def find_start(
    problem: Problem,
    n_init: int,
    report: Report = lambda *_: None,
    given: Subspaces | None = None,
    drawn: bool = True,
) -> Subspaces:
    """The start that up to n_init chains settle on; with n_init = 1, one start without swaps.

    A start that is `given` races beside those that are `drawn`, from k-means, or alone. `report`
    is called with chains done, chains at most, their starts and the lowest objective.
    """
    if n_init == 1 or problem.k == 1:
        racing = k_means_starts(problem, 1) if given is None else [given]
        only, reached = sweep(problem, racing[0], RACE_SWEEPS)
        report(1, 1, 1, reached)
        return only
    granted = n_init**2 * BUDGET / problem.sweep_cost  # sweeps
    racers = min(RACERS, max(1, int(granted / 2 // RACE_SWEEPS)))
    race = racers * RACE_SWEEPS
    whole = race + ROUNDS * ROUND_SWEEPS
    two = min(2, SIDE_BY_SIDE * granted // whole)
    chains = min(n_init, MOST_CHAINS, int(max(1, two, granted // whole)))
    rounds = ROUNDS
    if chains == 1:
        rounds = min(ROUNDS, max(1, int((granted - race) // ROUND_SWEEPS)))
    seeds = torch.randint(2**62, (chains,), generator=problem.generator).tolist()
    racers = racers if drawn else 0

    def work(seed: int) -> Ended:
        own = replace(problem, generator=torch.Generator().manual_seed(seed))
        found, objective = run_chain(own, racers, rounds, given)
        return found, objective, found.assign(problem.z)[0].cpu()

    ended: list[Ended] = []
    # One chain per core, each without threads of its own: its products are small, and waiting for
    # one another after every one of them costs more than they do, most of all on a busy machine.
    with closing(side_by_side(work, seeds, problem.z.device)) as coming:
        for chain in coming:
            ended.append(chain)
            ended.sort(key=lambda entry: entry[1])
            report(len(ended), chains, racers + (given is not None), ended[0][1])
            if settled(ended):
                break
    return consensus(ended)


def settled(ended: list[Ended]) -> bool:
    """Whether the best chains, lowest first, have found the same clustering often enough."""
    best = ended[:AGREED]
    near = best[-1][1] <= best[0][1] * (1 + TIE / 10) + 1e-30
    return len(best) == AGREED and near and all(alike(best[0], one) > 0.999 for one in best[1:])


def consensus(ended: list[Ended]) -> Subspaces:
    """Of the chains tied for the lowest objective, the one that agrees best with the others.

    Differences that small say little, and independent searches repeat what the data support, not
    their accidents.
    """
    tied = [entry for entry in ended if entry[1] <= ended[0][1] * (1 + TIE)]
    if len(tied) < 3:
        return ended[0][0]
    return max(tied, key=lambda one: round(sum(alike(one, other) for other in tied), 9))[0]


def alike(one: Ended, other: Ended) -> float:
    """Normalised mutual information of the labels of two chains."""
    from sklearn.metrics import normalized_mutual_info_score  # here, as above

    return float(normalized_mutual_info_score(one[2], other[2]))


def _winner(swept: list[Swept]) -> Swept:
    return min(swept, key=lambda entry: entry[1])


def run_chain(problem: Problem, racers: int, rounds: int, given: Subspaces | None = None) -> Swept:
    """One race and its swaps: the lowest objective and its subspaces."""
    racing = k_means_starts(problem, racers)
    racing += [] if given is None else [given]
    best, lowest = _winner([sweep(problem, one, RACE_SWEEPS) for one in racing])
    stale = 0
    for _ in range(rounds):
        if stale == PATIENCE:
            break
        proposed = [sweep(problem, one, CULL_SWEEPS) for one in propose_swaps(problem, best)]
        proposed.sort(key=lambda entry: entry[1])
        final = [sweep(problem, one, FINAL_SWEEPS) for one, _ in proposed[:SURVIVORS]]
        leader, objective = _winner(final)
        stale += 1
        if objective < lowest * (1 - 1e-6):
            best, lowest, stale = leader, objective, 0
    return best, lowest


def k_means_starts(problem: Problem, starts: int) -> list[Subspaces]:
    """Starts from clusters of k-means; dimensions that differ are dealt out at random."""
    from sklearn.cluster import KMeans  # here, since not every start needs it

    found, z = [], problem.z.cpu().numpy()
    for _ in range(starts):
        order = torch.randperm(problem.k, generator=problem.generator)
        seed = int(torch.randint(2**31, (1,), generator=problem.generator))
        means = KMeans(problem.k, n_init=1, max_iter=KMEANS_ITERATIONS, random_state=seed)
        labels = torch.from_numpy(means.fit_predict(z)).long().to(problem.z.device)
        found.append(start_of_labels(problem, labels, problem.dims[order]))
    return found


def start_of_labels(problem: Problem, labels: Tensor, dims: Tensor) -> Subspaces:
    """Subspaces of given clusters (m,) by a few power steps from random combinations of members."""
    used = (torch.arange(problem.p) < dims[:, None]).to(labels.device)  # (k, p)
    shape = (problem.k, problem.p, len(labels))
    member = problem.z.new_zeros(problem.k, len(labels)).scatter_(0, labels[None], 1.0)
    projected = torch.randn(shape, generator=problem.generator).to(problem.z)
    for _ in range(LABEL_STEPS):
        found = _power_step(problem, projected, member, used)
        projected = _project(problem, found)
    return found


def sweep(problem: Problem, found: Subspaces, sweeps: int) -> Swept:
    """Advance by assignments and power steps."""
    for _ in range(sweeps):
        projected = _project(problem, found)
        held, labels = _scores(problem, found, projected).max(dim=0)  # (m,)
        residual = (problem.norms - held).clamp_(min=0)
        weight = _counted(problem, residual)
        objective = (residual * weight).sum(dtype=torch.float64)
        member = weight.new_zeros(problem.k, len(weight)).scatter_(0, labels[None], weight[None])
        found = _power_step(problem, projected, member, found.used, found.bases)
    return found, float(objective)


def _counted(problem: Problem, residual: Tensor) -> Tensor:
    """Weights of the samples, 0 for the farthest of all: cheaper than per cluster."""
    weight = torch.ones_like(residual) if problem.weights is None else problem.weights
    if problem.trim > 0:
        stay = max(1, round((1 - problem.trim) * len(residual)))
        weight = weight * (residual <= residual.kthvalue(stay).values)
    return weight


def _project(problem: Problem, found: Subspaces) -> Tensor:
    """Coordinates of all samples in all bases, (k, p, m): contiguous along the samples."""
    k, d, p = found.bases.shape
    return (found.bases.mT.reshape(k * p, d) @ problem.z_t).view(k, p, -1)


def _scores(problem: Problem, found: Subspaces, projected: Tensor) -> Tensor:
    """|z|^2 minus the residual, shape (k, m): the larger the nearer."""
    energy = projected.square().sum(dim=1)
    if found.offsets is None:
        return energy
    norms = found.offsets.square().sum(dim=1)
    return energy + 2 * found.offsets @ problem.z_t - norms[:, None]


def _power_step(
    problem: Problem,
    projected: Tensor,
    member: Tensor,
    used: Tensor,
    current: Tensor | None = None,
) -> Subspaces:
    """orth(A_i S_i), with A_i S_i = Z^T (member * Z S) less the mean's share for affine ones.

    `projected` (k, p, m) is overwritten; `member` (k, m) are weights.
    """
    k, p, m = projected.shape
    masked = projected.mul_(member[:, None])
    moved = (masked.view(k * p, m) @ problem.z).view(k, p, -1).mT  # (k, d, p)
    mean = None
    if problem.affine:
        mean = (member @ problem.z) / member.sum(dim=1).clamp(min=1e-30)[:, None]
        moved = moved - mean[:, :, None] * masked.sum(dim=2)[:, None, :]
    if current is not None:
        moved = moved + KEPT * problem.norms.mean() * current
    return Subspaces.through(mean, orthonormal(moved) * used[:, None])


def propose_swaps(problem: Problem, best: Subspaces) -> list[Subspaces]:
    """Copies of the best, each with one subspace replaced by a neighbourhood's."""
    z, generator = problem.z, problem.generator
    score = _scores(problem, best, _project(problem, best))  # (k, m)
    (first, second), labels = score.topk(2, dim=0).values, score.argmax(dim=0)
    residual = (problem.norms - first).clamp(min=0)
    if problem.trim > 0:  # outliers are badly served too; do not chase them
        residual = residual * (_counted(problem, residual) > 0)
    seeds = draw_rows(residual, PROPOSALS, generator)
    members = neighbourhood_members(z, seeds, problem.neighbours, problem.affine)
    loss = z.new_zeros(problem.k).index_add_(0, labels, first - second)
    cheap = 1 / (loss + 1e-6 * loss.mean() + torch.finfo(z.dtype).tiny)
    dropped = draw_rows(cheap / cheap.max(), PROPOSALS, generator)
    new = local_subspaces(z, members, best.used[dropped], problem.affine)
    return [best.replaced(dropped[i : i + 1], new[i : i + 1]) for i in range(PROPOSALS)]
