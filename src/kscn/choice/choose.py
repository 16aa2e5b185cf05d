"""Clusters of a sample, chosen among many, for all samples.

The sample is clustered by several methods in several spaces, and the most self-consistent result is
taken (`kscn.choice.select`). If subspaces describe it, they grow on more samples and label
everything. If not, more samples are laid out (`kscn.choice.enlarge`), and the nearest vote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.choice.candidates import image_spaces, vector_spaces
from kscn.choice.enlarge import enlarged
from kscn.choice.grow import GROWTH, dimensions, fold_of, grow, growth_sample, residuals_across
from kscn.choice.select import Scored, Selection, select
from kscn.data import Source, as_source
from kscn.features import Votes
from kscn.features.steps import built, described
from kscn.neighbours import View, nearest, self_consistency
from kscn.neighbours.consistency import CONSISTENCY, asked
from kscn.parallel import one_thread
from kscn.runtime.blocks import Blocks
from kscn.runtime.group import place
from kscn.runtime.labels import canonical_order, in_order
from kscn.runtime.lazy import Lazy, held_features
from kscn.runtime.rows import raw_sample, sample, sample_rows
from kscn.subspaces import ScatterSums, Subspaces
from kscn.training.driver import Result, Run


@dataclass(frozen=True)
class Rules:
    """The numbers of the choice."""

    few: int = 1000  # samples below which threads only wait for each other
    # Samples that candidates are made from: so many, or so many per cluster, but no more than a
    # neighbour graph should have.
    sample: int = 6_000
    per_cluster: int = 100
    most: int = 20_000
    # The clusters of the start come from the very features that judge and are favoured by them:
    # true labels of handwritten digits measure up to this much less.
    bias: float = 0.02


CHOICE = Rules()
SUMMARISED = 10  # candidates that a run keeps, of several dozen


@dataclass(frozen=True)
class Start:
    """The clusters before the refinement."""

    subspaces: Subspaces  # in the space of the features
    labels: NDArray  # of all samples (n,)
    inertia: float  # sum of squared distances to these subspaces
    doubt: Tensor | None  # how unsure each label is (n,); left out where nothing is refined


@dataclass(frozen=True)
class Found:
    """What was chosen on the sample, the same in all processes."""

    rows: NDArray  # the sample (m,)
    labels: NDArray  # and its clusters (m,)
    features: nn.ModuleList  # the space in which they show best
    wide: nn.ModuleList  # all components of the same kind
    subspace_dim: int  # of the subspaces that tell them apart; 0 if subspaces do not
    confidence: float  # self-consistency
    chosen: str  # which candidate was taken, in words
    tried: dict[str, Any]  # all that was tried, in short
    laid_out: tuple[nn.ModuleList, ...] = ()  # spaces of a layout that is as good up to chance
    described: NDArray | None = None  # by all steps but the last, if known of all samples


@dataclass(frozen=True)
class Choice:
    """The clusters of all samples, and how they were chosen."""

    start: Start
    features: nn.ModuleList  # from samples to where the subspaces of the start are
    wide: nn.ModuleList  # what a refinement asks
    facts: Mapping[str, Any]  # confidence, chosen, subspace_dim, tried
    selection: Selection | None = None  # all that this process has tried, in a fit not resumed


def choose(source: Source, k: int, starts: int, image: bool, refined: bool, run: Run) -> Choice:
    """Clusters of a sample, chosen among many, for all samples; `refined` if that follows."""
    selections: list[Selection] = []
    made: dict[str, nn.ModuleList] = {}  # in a fit that goes on elsewhere they are in its state

    def find() -> Result:
        with one_thread() if place(source)[1] < CHOICE.few else nullcontext():
            found = _of_sample(source, k, starts, image, run, selections.append)
            if not found.subspace_dim and found.laid_out:
                found = _enlarged(found, source, k, run)
            features, start = find_start(found, source, k, refined, run)
        facts = {
            "confidence": found.confidence,
            "chosen": found.chosen,
            "subspace_dim": found.subspace_dim,
            "tried": found.tried,
        }
        result = Result(facts | {"inertia": start.inertia})
        result.tensors |= {
            "bases": start.subspaces.bases,
            "labels": torch.from_numpy(start.labels),
        }
        if start.doubt is not None:
            result.tensors["doubt"] = start.doubt
        made.update(features=features, wide=found.wide)
        for name, steps in made.items():
            result.facts[name] = described(steps)
            result.tensors |= {f"{name}.{key}": v for key, v in steps.state_dict().items()}
        return result

    result = run.once("choose", find)
    tensors, facts = result.tensors, result.facts
    start = Start(
        Subspaces(tensors["bases"]),
        tensors["labels"].numpy(),
        facts["inertia"],
        tensors.get("doubt"),
    )

    def steps(name: str) -> nn.ModuleList:
        return made[name] if made else built(facts[name], result.part(name), source.shape)[0]

    return Choice(start, steps("features"), steps("wide"), facts, *selections)


def _of_sample(
    source: Source,
    k: int,
    starts: int,
    image: bool,
    run: Run,
    keep: Callable[[Selection], object],
) -> Found:
    """The clusters of a sample, which the first process chooses for all."""
    n, most = place(source)[1], min(CHOICE.most, max(CHOICE.sample, CHOICE.per_cluster * k))
    rows, samples = raw_sample(source, most, run.seed, run.group)
    found: Found | None = None
    if run.group.rank == 0:
        spaces, known = (image_spaces if image else vector_spaces)(samples, run.device)

        def on_record(record: dict[str, Any]) -> None:
            run.record(**record)

        selection = select(spaces, rows, n, k, starts, run.seed, on_record)
        keep(selection)
        best = selection.best
        found = Found(
            rows,
            selection.labels,
            best.space.features,
            best.space.wide,
            best.subspace_dim,
            best.value,
            f"{best.candidate.method} ({best.candidate.space})",
            _summary(selection),
            tuple(space.features for space in selection.laid_out),
            known.get(best.space.wide[-2]) if len(rows) == n and run.group.size == 1 else None,
        )
    return run.group.shared(found)


def _summary(selection: Selection) -> dict[str, Any]:
    """A selection as plain values, which states and runs can hold."""
    best, tried = selection.best, selection.tried
    others = [entry for entry in tried if entry.candidate.kind != best.candidate.kind]
    return {
        **_row(best),
        "rival": _row(others[0]) if others else None,
        "candidates": len(tried),
        "spaces": len({entry.candidate.space for entry in tried if not entry.common}),
        "tried": [_row(entry) for entry in tried[:SUMMARISED]],
    }


def _row(entry: Scored) -> dict[str, Any]:
    space, method = entry.candidate.space, entry.candidate.method
    return {"space": space, "method": method, "consistency": round(entry.value, 4)}


def _enlarged(found: Found, source: Source, k: int, run: Run) -> Found:
    """The clusters of more samples, if there are more, by a layout of the spaces of a layout."""
    rows, known = larger_sample(found.rows, place(source)[1], run.seed)
    if len(rows) == len(found.rows):
        return found
    z = [
        sample(
            run.group.holding(Lazy(source, steps.to(run.device), run.device)),
            rows,
            run.device,
            run.group,
        )
        for steps in found.laid_out
    ]
    larger = None
    if run.group.rank == 0:
        larger = enlarged([one.float() for one in z], known, found.labels, k, run.seed)
    larger = run.group.shared(larger)
    if larger is None:
        return found
    method, where = f"layout, {len(rows)} samples", "best spaces"
    tried = {"space": where, "method": method, "consistency": round(larger.value, 4)}
    return replace(
        found,
        rows=rows,
        labels=larger.labels,
        confidence=larger.value,
        chosen=f"{method} ({where})",
        tried=found.tried | tried,
        described=None,
    )


def larger_sample(known: NDArray, n: int, seed: int) -> tuple[NDArray, NDArray]:
    """As many of n rows as are laid out, known ones among them, and where these are in it."""
    others = np.setdiff1d(sample_rows(n, CHOICE.most, seed), known)
    more = sample_rows(len(others), max(0, CHOICE.most - len(known)), seed)
    rows = np.union1d(known, others[more])
    return rows, np.searchsorted(rows, known)


def find_start(
    found: Found, source: Source, k: int, refined: bool, run: Run
) -> tuple[nn.ModuleList, Start]:
    """All samples by grown subspaces or by votes: their features, and their clusters.

    A refinement gets every label from subspaces that the sample had no part in where that can be,
    and how doubtful it is; otherwise labels are what `predict` says.
    """
    device, group = run.device, run.group
    known = None if found.described is None else as_source(found.described, name=source.name)
    if found.subspace_dim:
        features = held_features(found.wide, source, device, group, known)
        return found.wide, _grown(found, features, k, refined, run)
    first = held_features(found.features, source, device, group, known)
    z = sample(first, found.rows, device, group).float()
    labels = torch.from_numpy(found.labels).long().to(device)
    last = nn.ModuleList([Votes.of(z, labels, k, asked(len(z), k))])
    subspaces = Subspaces.along_axes(k, 1)
    features = held_features(last, first, device, group)
    blocks = Blocks(features, torch.float32, device)
    in_place = in_order(blocks, subspaces.to(torch.float32, device), group)
    doubt = group.gather(_doubt(blocks, in_place.subspaces)) if refined else None
    return found.features + last, Start(*in_place[:3], doubt)


def _grown(found: Found, features: Source, k: int, refined: bool, run: Run) -> Start:
    """Subspaces of the sample's clusters, grown on more samples."""
    seed, device, group = run.seed, run.device, run.group
    z = sample(features, found.rows, device, group)
    sums = ScatterSums(k, z.shape[1], affine=False, device=device)
    sums.add(z, torch.from_numpy(found.labels).long().to(device))
    first = max(1, min(GROWTH.first_dim, found.subspace_dim))
    small = sums.subspaces(torch.full((k,), first)).to(z.dtype, device)
    rows, z = growth_sample(features, seed, device, group)
    dims = dimensions(first, len(rows) // k, z.shape[1]) or [first]

    def report(done: int, of: int) -> None:
        run.record(stage="grow", round=done, rounds=of)

    fold = fold_of(torch.from_numpy(rows), seed).to(device)
    grown = grow(z, fold, small.assign(z)[0], k, dims, report, across=refined)
    whole, without = group.agree_on(grown.whole), [group.agree_on(part) for part in grown.without]
    blocks = Blocks(features, torch.float32, device)
    if not refined:
        return Start(*in_order(blocks, whole, group)[:3], None)
    two = [_nearest_two(residual) for residual in residuals_across(blocks, without, seed)]
    own, nearest, second = (torch.cat(pieces) for pieces in zip(*two, strict=True))
    labels = group.gather(own).cpu().numpy()
    order = canonical_order(labels, k)
    (inertia,) = group.add(float(nearest.double().sum()))
    whole = whole[torch.from_numpy(order).to(device)]
    doubt = group.gather(_relative(nearest, second)).cpu()
    return Start(whole, np.argsort(order)[labels], inertia, doubt)


def better(
    wide: nn.ModuleList, source: Source, new: NDArray, old: NDArray, k: int, run: Run
) -> bool:
    """Whether new clusters are as self-consistent as the old ones, up to the bias against them."""
    features = run.group.holding(Lazy(source, wide.to(run.device), run.device))
    rows = sample_rows(len(new), CHOICE.sample, run.seed)
    z = sample(features, rows, run.device, run.group).float()
    view = View(z, nearest(z, CONSISTENCY.asked).index)
    after, before = (
        self_consistency([view], torch.from_numpy(labels[rows]).long().to(z.device), k, run.seed)
        for labels in (new, old)
    )
    return bool(run.group.shared(after.value >= before.value - CHOICE.bias))


def _doubt(blocks: Blocks, subspaces: Subspaces) -> Tensor:
    """How doubtful the label of every sample is, (n,)."""
    if subspaces.n_clusters == 1:
        return torch.zeros(len(blocks))
    two = (_nearest_two(subspaces.residuals(z)) for _, z in blocks)
    return torch.cat([_relative(nearest, second).cpu() for _, nearest, second in two])


def _nearest_two(residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest subspace, the squared distance to it and to the next one, (n,) each."""
    two = residual.topk(min(2, residual.shape[1]), dim=1, largest=False)
    return two.indices[:, 0], two.values[:, 0], two.values[:, -1]


def _relative(nearest: Tensor, second: Tensor) -> Tensor:
    """Distance to the nearest subspace over that to the next: from 0, sure, to 1.

    Not their difference: a rare shape is far from all of them, but may be clear.
    """
    return nearest.double() / second.double().clamp(min=1e-30)
