"""Finding a good start on a subsample: races, swaps, and the run that the others agree with.

Single runs of k-subspaces end in very different local minima, and a lower objective is a better
clustering far more often than not. So this is where the effort goes. One *chain* is

1. a race: several starts advance together, the lowest objective wins. One sweep assigns every
   sample and replaces each basis by orth(A_i S_i), a power step on the scatter of its members,
   computed as Z^T (masked Z S): two large matrix products for all candidates at once, no d x d
   sums, no eigendecompositions. A_i is positive semidefinite, so a power step never lowers the
   energy held and sweeps descend;
2. swaps: drop one subspace (one that is cheap to lose), put a new one around a badly served
   sample; sweep many such proposals together, cull, sweep on, keep the best if it is lower. This
   leaves local minima that plain restarts share.

Chains are repeated. Those whose objective comes within half a percent of the lowest are tied:
differences that small say little. Among them the one that agrees best with the others (mutual
information) is taken: independent searches repeat what the data supports, not their accidents.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event

import torch
from torch import Tensor

from kscn.parallel import side_by_side
from kscn.subspaces.bases import Subspaces
from kscn.subspaces.decompositions import orthonormal
from kscn.subspaces.seeding import (
    draw_rows,
    k_means_labels,
    local_subspaces,
    neighbourhood_members,
)

# Some of these numbers were compared on digits.
RACERS, RACE_SWEEPS = 10, 15  # starts in a race, and sweeps until one wins
# Rounds of swaps in one chain, fewer after so many without improvement.
ROUNDS, PATIENCE = 12, 4
# Swaps proposed in a round, of which some are left after a few sweeps and get further ones. 40 and
# 10 of them took twice the time.
PROPOSALS, CULL_SWEEPS = 20, 2
SURVIVORS, FINAL_SWEEPS = 5, 8
# Arithmetic granted per square of n_init, so that more chains may also be longer ones: a second or
# two for n_init = 2. Large problems get fewer chains and rounds, small ones end before.
BUDGET = 5e9
MOST_CHAINS = 10_000  # however large n_init is: the seeds of all are drawn at once
# Candidates share one product while their projections fit in cache: floats per chunk.
CHUNK = 1 << 17
# Objectives within this share of the lowest are tied, and with so many chains of the same
# clustering the search ends.
TIE, AGREED = 0.005, 3

Report = Callable[[int, int, int, float], None]
Ended = tuple[float, Subspaces, Tensor]  # objective, subspaces and labels of a chain


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


def find_start(
    problem: Problem,
    n_init: int,
    report: Report = lambda *_: None,
    given: Subspaces | None = None,
    drawn: bool = True,
) -> Subspaces:
    """The start that up to n_init chains settle on; with n_init = 1, one start without swaps.

    Candidates that are `given` race beside those that are `drawn`, from k-means, or alone.
    `report` is called with chains done, chains at most, their starts and the lowest objective.
    """
    if n_init == 1 or problem.k == 1:
        racing = k_means_starts(problem, 1) if given is None else given
        only, reached = _winner(*sweep(problem, racing, RACE_SWEEPS))
        report(1, 1, len(racing.bases), reached)
        return only[0]
    granted = n_init**2 * BUDGET
    racers = min(RACERS, max(1, int(granted / 2 // (RACE_SWEEPS * problem.sweep_cost))))
    race_cost = racers * RACE_SWEEPS * problem.sweep_cost
    sweeps = PROPOSALS * CULL_SWEEPS + SURVIVORS * FINAL_SWEEPS
    round_cost = sweeps * problem.sweep_cost
    most = min(n_init, MOST_CHAINS)
    chains = min(most, max(1, int(granted // (race_cost + ROUNDS * round_cost))))
    rounds = max(1, min(ROUNDS, int((granted / chains - race_cost) // round_cost)))
    racers = racers if drawn else 0
    return consensus(run_chains(problem, chains, racers, rounds, report, given))


def run_chains(
    problem: Problem,
    chains: int,
    racers: int,
    rounds: int,
    report: Report,
    given: Subspaces | None = None,
) -> list[Ended]:
    """Run independent chains side by side until all have ended or enough of them agree.

    One chain per core, each without threads of its own: its products are small, and waiting for
    one another after every one of them costs more than they do, most of all on a busy machine.
    Chains are taken in order and have their own seeds, so the result does not depend on timing.
    """
    seeds = torch.randint(2**62, (chains,), generator=problem.generator).tolist()
    stop = Event()

    def work(seed: int) -> Ended:
        own = replace(problem, generator=torch.Generator().manual_seed(seed))
        objective, found = run_chain(own, racers, rounds, given, stop)
        return objective, found, found.assign(problem.z)[0]

    ended: list[Ended] = []
    with closing(side_by_side(work, seeds, problem.z.device)) as coming:
        try:
            for chain in coming:
                ended.append(chain)
                lowest = min(objective for objective, _, _ in ended)
                report(len(ended), chains, racers + (given is not None), lowest)
                if settled(ended):
                    break
        finally:  # also on Ctrl-C: chains notice at their next round
            stop.set()
    return ended


def run_chain(
    problem: Problem,
    racers: int,
    rounds: int,
    given: Subspaces | None = None,
    stop: Event | None = None,
) -> tuple[float, Subspaces]:
    """One race and its swaps, until `stop` is set: the lowest objective and its subspaces."""
    racing = [k_means_starts(problem, racers)] if racers else []
    racing += [] if given is None else [given]
    best, lowest = _winner(*sweep(problem, Subspaces.joined(racing), RACE_SWEEPS))
    stale = 0
    for _ in range(rounds):
        if stale == PATIENCE or (stop is not None and stop.is_set()):
            break
        proposals, objective = sweep(problem, propose_swaps(problem, best), CULL_SWEEPS)
        proposals = proposals[objective.argsort()[:SURVIVORS]]
        leader, objective_now = _winner(*sweep(problem, proposals, FINAL_SWEEPS))
        stale += 1
        if objective_now < lowest * (1 - 1e-6):
            best, lowest, stale = leader, objective_now, 0
    return lowest, best[0]


def settled(ended: list[Ended]) -> bool:
    """Whether the best chains have found the same clustering often enough."""
    ended = sorted(ended, key=lambda entry: entry[0])[:AGREED]
    if len(ended) < AGREED or ended[-1][0] > ended[0][0] * (1 + TIE / 10) + 1e-30:
        return False
    return all(mutual_information(ended[0][2], other[2]) > 0.999 for other in ended[1:])


def consensus(ended: list[Ended]) -> Subspaces:
    """Of the chains tied for the lowest objective, the one that agrees best with the others."""
    ended = sorted(ended, key=lambda entry: entry[0])
    tied = [entry for entry in ended if entry[0] <= ended[0][0] * (1 + TIE)]
    if len(tied) < 3:
        return tied[0][1]
    agreement = [sum(mutual_information(a[2], b[2]) for b in tied) for a in tied]
    return tied[max(range(len(tied)), key=lambda i: round(agreement[i], 9))][1]


def mutual_information(a: Tensor, b: Tensor) -> float:
    """Normalised mutual information of two labelings; 1 when they are the same clustering."""
    width = int(b.max()) + 1
    joint = torch.bincount(a * width + b, minlength=(int(a.max()) + 1) * width).double()
    joint = joint.view(-1, width) / len(a)

    def entropy(share: Tensor) -> float:
        return float(-torch.special.xlogy(share, share).sum())

    of_a, of_b = entropy(joint.sum(dim=1)), entropy(joint.sum(dim=0))
    both = of_a + of_b
    return 1.0 if both == 0 else 2 * (both - entropy(joint)) / both


def _winner(candidates: Subspaces, objective: Tensor) -> tuple[Subspaces, float]:
    leader = int(objective.argmin())
    return candidates[leader : leader + 1], float(objective[leader])


def k_means_starts(problem: Problem, starts: int) -> Subspaces:
    """R starts from clusters of k-means; dimensions that differ are dealt out at random."""
    orders = [torch.randperm(problem.k, generator=problem.generator) for _ in range(starts)]
    used = torch.arange(problem.p) < problem.dims[torch.stack(orders)][:, :, None]  # (R, k, p)
    used = used.to(problem.z.device)
    labels = k_means_labels(problem.z, problem.k, starts, problem.generator)
    return candidates_from_labels(problem, labels.mT, used)


def candidates_from_labels(problem: Problem, labels: Tensor, used: Tensor) -> Subspaces:
    """Subspaces of given clusters (R, m) by a few power steps from random members' combinations."""

    def build(part: slice) -> Subspaces:
        near = labels[part]
        shape = (len(near), problem.k, problem.p, near.shape[1])
        member = problem.z.new_zeros(shape[0], shape[1], shape[3]).scatter_(1, near[:, None], 1.0)
        mean = _means(problem, member) if problem.affine else None
        projected = torch.randn(shape, generator=problem.generator).to(problem.z.device)
        for _ in range(3):
            masked = projected.mul_(member[:, :, None])
            bases = _power_step(problem, masked, mean, used[part])
            projected = _project(problem, bases)
        return Subspaces.through(mean, bases)

    return Subspaces.joined([build(part) for part in _chunks(problem, len(labels))])


def sweep(problem: Problem, candidates: Subspaces, sweeps: int) -> tuple[Subspaces, Tensor]:
    """Advance every candidate; return them and their objectives at the last assignment (R,)."""
    done, objectives = [], []
    for part in _chunks(problem, len(candidates.bases)):
        chunk = candidates[part]
        for _ in range(sweeps):
            chunk, objective = _sweep_once(problem, chunk)
        done.append(chunk)
        objectives.append(objective)
    return Subspaces.joined(done), torch.cat(objectives)


def _chunks(problem: Problem, count: int) -> list[slice]:
    size = max(1, CHUNK // (len(problem.z) * problem.k * problem.p))
    return [slice(begin, begin + size) for begin in range(0, count, size)]


def _sweep_once(problem: Problem, candidates: Subspaces) -> tuple[Subspaces, Tensor]:
    """One assignment and one power step of all candidates; the objective is between the two."""
    projected = _project(problem, candidates.bases)  # (R, k, p, m)
    score = _scores(problem, candidates, projected)  # (R, k, m)
    held, labels = score.max(dim=1)
    residual = (problem.norms - held).clamp_(min=0)  # (R, m)
    weight = torch.ones_like(residual)
    if problem.weights is not None:
        weight *= problem.weights
    if problem.trim > 0:
        weight *= _near(residual, problem.trim)
    objective = (residual * weight).sum(dim=1, dtype=torch.float64)
    member = torch.zeros_like(score).scatter_(1, labels[:, None], weight[:, None])
    mean = _means(problem, member) if problem.affine else None
    masked = projected.mul_(member[:, :, None])
    bases = _power_step(problem, masked, mean, candidates.used, candidates.bases)
    return Subspaces.through(mean, bases), objective


def _near(residual: Tensor, trim: float) -> Tensor:
    """Mask of all but the farthest samples, of a candidate as a whole: cheaper than per cluster."""
    stay = max(1, round((1 - trim) * residual.shape[-1]))
    return residual <= residual.kthvalue(stay, dim=-1, keepdim=True).values


def _project(problem: Problem, bases: Tensor) -> Tensor:
    """Coordinates of all samples in all bases, (R, k, p, m): contiguous along the samples."""
    starts, k, d, p = bases.shape
    return (bases.mT.reshape(-1, d) @ problem.z_t).view(starts, k, p, -1)


def _scores(problem: Problem, candidates: Subspaces, projected: Tensor) -> Tensor:
    """|z|^2 minus the residual, shape (R, k, m): the larger the nearer."""
    energy = projected.square().sum(dim=2)
    if candidates.offsets is None:
        return energy
    flat = candidates.offsets.flatten(0, 1)  # (R k, d)
    return energy + (2 * flat @ problem.z_t - flat.square().sum(dim=1)[:, None]).view_as(energy)


def _means(problem: Problem, member: Tensor) -> Tensor:
    """Weighted means of the members, shape (R, k, d)."""
    total = member.sum(dim=2).clamp(min=1e-30)  # (R, k)
    return (member.flatten(0, 1) @ problem.z).unflatten(0, total.shape) / total[:, :, None]


def _power_step(
    problem: Problem,
    masked: Tensor,
    mean: Tensor | None,
    used: Tensor,
    current: Tensor | None = None,
) -> Tensor:
    """orth(A_i S_i), with A_i S_i = Z^T (member * Z S) less the mean's share for affine ones.

    A little of the current basis is added so that clusters without members keep their place.
    """
    starts, k, p, m = masked.shape
    moved = (masked.view(-1, m) @ problem.z).view(starts, k, p, -1).mT  # (R, k, d, p)
    if mean is not None:
        moved = moved - mean[..., None] * masked.sum(dim=3)[:, :, None, :]
    if current is not None:
        moved = moved + 1e-6 * current * problem.norms.mean()
    return orthonormal(moved) * used[:, :, None]


def propose_swaps(problem: Problem, best: Subspaces) -> Subspaces:
    """Copies of the best candidate, each with one subspace replaced by a neighbourhood's."""
    z, generator = problem.z, problem.generator
    score = _scores(problem, best, _project(problem, best.bases))[0]  # (k, m)
    (first, second), labels = score.topk(2, dim=0).values, score.argmax(dim=0)
    residual = (problem.norms - first).clamp(min=0)
    if problem.trim > 0:  # outliers are badly served too; do not chase them
        residual = residual * _near(residual, problem.trim)
    seeds = draw_rows(residual[None], PROPOSALS, generator)[0]
    members = neighbourhood_members(z, seeds, problem.neighbours, problem.affine)
    loss = z.new_zeros(problem.k).index_add_(0, labels, first - second)
    cheap = 1 / (loss + 1e-6 * loss.mean() + torch.finfo(z.dtype).tiny)
    dropped = draw_rows((cheap / cheap.max())[None], PROPOSALS, generator)[0]
    rows = torch.arange(PROPOSALS, device=z.device)
    new = local_subspaces(z, members, best.used[0, dropped], problem.affine)
    return best[rows.new_zeros(PROPOSALS)].replaced((rows, dropped), new)
