"""The most self-consistent of many candidate clusterings.

Candidates are weighted by their self-consistency (`kscn.neighbours.consistency`), and what they
have in common is one more candidate. The best of them all are then assigned anew by subspaces that
each sample had no part in, of growing dimension: where clusters are near subspaces that mends them,
and where they are not it shows in the measure. What has the highest self-consistency is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.choice.candidates import (
    LAYOUT,
    WHITENED,
    Candidate,
    Space,
    candidates,
    laid_out,
    neighbours_of,
)
from kscn.choice.grow import GROWTH, dimensions
from kscn.neighbours import Neighbours, View, consensus, self_consistency
from kscn.neighbours.coding import coding_length
from kscn.neighbours.consistency import CONSISTENCY, Consistency, margin, neighbour_consistency
from kscn.neighbours.heldout import HELD_OUT, energies, random_rank, unexplained
from kscn.parallel import one_thread, side_by_side
from kscn.subspaces.search import empty_clusters_allowed

CONSENSUS = "consensus"


@dataclass(frozen=True)
class Rules:
    """The numbers of the selection."""

    # Single candidates that go to the last round beside the consensus: the best of each kind, and
    # so many of k-subspaces.
    finalists: int = 2
    # Joint graphs are laid out of the few spaces in which most neighbours agree with what the other
    # candidates have in common, and of the first whitened one with the first of the others, which
    # say different things. Layouts of fewer samples take longer than all the rest and were no
    # better than the spectrum of the graph on any of seven small sets.
    agreeing: int = 3
    laid_out: int = 1000
    passes: int = 2  # assignments at every dimension of the last round
    # Clusters are flat if subspaces of up to so many dimensions, among the leading ones, leave less
    # than this share of the variance, or than this part of what those of the best candidate leave.
    # Of 155 sequences of moving bodies 154 leave less than 0.0003, of 16 tables the least is 0.016.
    flat_dim: int = 3
    leading: int = 20
    flat: float = 0.002
    flatter: float = 0.25
    # What coded samples may be off by, as a share of their root mean square length. With 0.001 to
    # 0.03 the error on these sequences is 1.1 to 1.8 %.
    distance: float = 0.01
    rounding: float = 1e-6  # nats per sample by which codes of the same clusters may differ


RULES = Rules()


@dataclass(frozen=True)
class Scored:
    """A candidate, what it scores, and the space in which that shows best."""

    candidate: Candidate
    found: Consistency
    space: Space
    subspace_dim: int = 0  # of the subspaces that its labels come from, if they do

    @property
    def value(self) -> float:
        """Self-consistency, from 0 to 1."""
        return self.found.value

    @property
    def common(self) -> bool:
        """Whether this is what several candidates or spaces have in common."""
        return self.candidate.kind in (CONSENSUS, LAYOUT)


@dataclass(frozen=True)
class Selection:
    """What was taken, and all that was tried, best first."""

    best: Scored
    tried: list[Scored]
    rows: NDArray  # numbers of the samples that all this is about
    laid_out: Sequence[Space] = ()  # those of a layout that is as good up to chance, if one is

    @property
    def labels(self) -> NDArray:
        """Clusters of the sample (m,)."""
        return self.best.candidate.labels


@empty_clusters_allowed()
def select(
    spaces: Sequence[Space],
    rows: NDArray,
    n: int,
    k: int,
    starts: int,
    seed: int,
    on_record: Callable[[dict[str, Any]], object] = lambda _: None,
) -> Selection:
    """The most self-consistent clustering of a sample, these rows of n."""
    device = spaces[0].z.device
    near = list(side_by_side(lambda space: neighbours_of(space.z, k), spaces, device))
    judges = [(s, View(s.z, n.index)) for s, n in zip(spaces, near, strict=True) if s.judges]
    views = [view for _, view in judges]

    def measured(labels: NDArray) -> Consistency:
        return self_consistency(views, _tensor(labels, device), k, seed)

    def scored(one: Candidate, dim: int = 0, place: Space | None = None) -> Scored:
        found = measured(one.labels)
        where = max(found.views, key=lambda number: found.views[number])
        return Scored(one, found, place or judges[where][0], dim)

    def found_in(number: int) -> list[Scored]:
        return [scored(one) for one in candidates(spaces[number], near[number], k, starts, seed)]

    tried: list[Scored] = []
    everywhere = side_by_side(found_in, range(len(spaces)), device)
    for number, found in enumerate(everywhere, start=1):
        tried += found
        on_record(
            {
                "stage": "search",
                "round": number,
                "rounds": len(spaces),
                "candidates": len(tried),
                "consistency": max(entry.value for entry in tried),
            }
        )

    groups: dict[str, list[int]] = {}
    if len(rows) >= RULES.laid_out:
        groups = _complementary(spaces, near, _in_common(tried, k, seed).labels, k)
        layouts = laid_out(near, groups, k, seed, lambda labels: measured(labels).value)
        tried += side_by_side(scored, layouts, device)
    with one_thread():
        tried.append(scored(_in_common(tried, k, seed)))

    def anew(entry: Scored) -> Scored:
        space, candidate = _where(spaces, entry), entry.candidate
        labels, dim = settled(space.z, candidate.labels, k, seed)
        method = f"{candidate.method}, settled"
        return scored(replace(candidate, labels=labels, method=method), dim, space)

    tried += list(side_by_side(anew, _finalists(tried), device))
    tried.sort(key=lambda entry: -entry.value)
    best = _taken(tried, len(rows), others=n > len(rows))
    taken = _shortest_code(spaces, tried, best, k, seed)
    return Selection(taken, tried, rows, [spaces[number] for number in _as_good(tried, groups)])


def _in_common(tried: Sequence[Scored], k: int, seed: int) -> Candidate:
    """What the candidates agree on best."""
    found = [entry.candidate.labels for entry in tried]
    with one_thread():
        labels = consensus(found, [entry.value for entry in tried], k, seed)
    return Candidate(labels, "all", CONSENSUS)


def _taken(tried: Sequence[Scored], n: int, others: bool) -> Scored:
    """The highest value of n samples, unless what several have in common is as good up to chance.

    The consensus of all candidates and layouts of joint graphs are less of an accident than a
    clustering of one space. Subspaces say more of clusters than labels do, and carry on best to
    other samples: they go first where they are as good within one standard error, and where there
    are `others` also within all that may be chance.
    """
    best = tried[0]
    chance = margin(best.value, n)
    good = [entry for entry in tried if entry.value >= best.value - chance]
    first = max(good, key=lambda entry: (entry.common, entry.value))
    least = first.value - (chance if others else chance / CONSISTENCY.errors)
    equals = [entry for entry in good if entry.common == first.common and entry.value >= least]
    return max(equals, key=lambda entry: (entry.subspace_dim > 0, entry.value))


def _shortest_code(
    spaces: Sequence[Space], tried: Sequence[Scored], best: Scored, k: int, seed: int
) -> Scored:
    """The candidate by whose clusters samples take the fewest bits, if these clusters are flat.

    Neighbours and Gaussians are content with any compact groups. Where clusters lie in subspaces so
    flat that hardly anything is left, such as points that move with one body, that is no accident,
    and what tells such clusters apart is how short a code for them is.
    """
    place = next((space for space in spaces if not space.lines), None)
    columns = place.z.shape[1] - 1 if place else 0  # one is constant
    dims = min(RULES.flat_dim, columns // 2)
    if place is None or not dims:
        return best
    z = place.z[:, : min(RULES.leading, columns)]
    distance = RULES.distance * float(z.square().sum(dim=1).mean().sqrt())
    usual = (z - z.median(dim=0).values).square().sum(dim=1).median().sqrt()
    if float(usual) <= distance:  # a few samples far away are nearly all of the variance
        return best

    def length(entry: Scored) -> float:
        return coding_length(z, _tensor(entry.candidate.labels, z.device), k, distance)

    shortest = min(tried, key=length)
    if length(best) - length(shortest) < RULES.rounding * len(z):  # the same clusters
        return best
    fold = random_rank(len(z), seed, z.device) % HELD_OUT.folds

    def left(entry: Scored) -> Tensor:
        return unexplained(z, _tensor(entry.candidate.labels, z.device), k, fold, dims)

    # The fewer dimensions there are besides, the more of them flat clusters hold by chance.
    room = 1 - torch.arange(1, dims + 1, device=z.device) / columns
    if not (left(shortest) < (RULES.flatter * room * left(best)).clamp(min=RULES.flat)).any():
        return best
    found = shortest.candidate
    return replace(shortest, candidate=replace(found, method=f"{found.method}, shortest code"))


def _complementary(
    spaces: Sequence[Space], near: Sequence[Neighbours], labels: NDArray, k: int
) -> dict[str, list[int]]:
    """Groups of spaces to lay out together, by their numbers.

    Spaces go by the share of neighbours in them that are of the same of these clusters.
    """
    now = _tensor(labels, near[0].index.device)
    share = [neighbour_consistency(one.index, now, k) for one in near]
    order = sorted(range(len(near)), key=lambda number: -share[number])
    whitened = [spaces[number].name.endswith(WHITENED) for number in order]
    two = [order[whitened.index(wanted)] for wanted in (False, True)]
    return {f"{RULES.agreeing} best spaces": order[: RULES.agreeing], "two best kinds": two}


def _as_good(tried: Sequence[Scored], groups: Mapping[str, list[int]]) -> Sequence[int]:
    """The first group whose layout is as good, up to chance, as the best of what was tried."""
    best, n = tried[0].value, len(tried[0].candidate.labels)
    good = [one.candidate for one in tried if one.value >= best - margin(best, n)]
    names = {candidate.space for candidate in good if candidate.method == LAYOUT}
    return next((group for name, group in groups.items() if name in names), ())


def _finalists(tried: Sequence[Scored]) -> list[Scored]:
    """The consensus and the best of each kind of method."""
    kinds: dict[str, list[Scored]] = {}
    for entry in sorted(tried, key=lambda entry: -entry.value):
        kinds.setdefault(entry.candidate.kind, []).append(entry)
    return [
        entry
        for kind, found in kinds.items()
        for entry in found[: RULES.finalists if kind == "k-subspaces" else 1]
    ]


def _where(spaces: Sequence[Space], entry: Scored) -> Space:
    """Where subspaces grow: in all components of what the best space is made of."""
    if not entry.space.lines or entry.space.name.endswith("lines"):
        return entry.space
    kind = entry.space.name.split(",")[0]
    return next(space for space in spaces if space.name == f"{kind}, components")


def settled(z: Tensor, labels: NDArray, k: int, seed: int) -> tuple[NDArray, int]:
    """Labels by subspaces of growing dimension, each sample by those it had no part in."""
    members, d = len(z) // k, z.shape[1]
    last = min(d // GROWTH.part, members // GROWTH.members_per_dim)
    first = max(1, min(GROWTH.first_dim, last))
    fold = random_rank(len(z), seed, z.device) % HELD_OUT.folds
    now = _tensor(labels, z.device)
    for dim in [first, *dimensions(first, members, d)]:
        for _ in range(RULES.passes):
            now = energies(z, now, k, fold, dim).argmax(dim=1)
    return now.cpu().numpy(), dim


def _tensor(labels: NDArray, device: torch.device) -> Tensor:
    return torch.from_numpy(labels).long().to(device)
