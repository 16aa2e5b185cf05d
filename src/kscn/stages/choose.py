"""The first stage of a `KSCNPlus` fit: clusters of a sample, chosen among many, for all samples.

The sample is clustered by several methods in several spaces, and the most self-consistent result is
taken (`kscn.stages.select`). If subspaces describe it, they grow on more samples and label
everything. If not, more samples are laid out (`kscn.stages.enlarge`), and the nearest vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.chosen import summary
from kscn.data import Source, as_source
from kscn.features import FeatureChain, VotedFeatures
from kscn.features.base import check_finite
from kscn.modelparts import plain
from kscn.neighbours.consistency import asked
from kscn.parallel import one_thread
from kscn.runtime.blocks import Blocks, held, working_dtype
from kscn.runtime.checkpoint import State, prefixed, shared
from kscn.runtime.group import Group, own_rows, place
from kscn.runtime.labels import canonical_order, in_order
from kscn.stages.candidates import Space, image_spaces, vector_spaces
from kscn.stages.enlarge import enlarged
from kscn.stages.grow import GROWTH, dimensions, fold_of, grow, residuals_across
from kscn.stages.run import Fit, Stage
from kscn.stages.select import Selection, select
from kscn.subspaces import ScatterSums, Subspaces


@dataclass(frozen=True)
class Rules:
    """The numbers of the choice."""

    few: int = 1000  # samples below which threads only wait for each other
    # Samples that candidates are made from: so many, or so many per cluster, but no more than a
    # neighbour graph should have.
    sample: int = 6_000
    per_cluster: int = 100
    most: int = 20_000
    growth_sample: int = 70_000  # samples on which subspaces grow; they are held in memory
    keep_bytes: int = 2**29  # of components per process; beyond, they are computed when read


CHOICE = Rules()
# What the estimator knows of the choice, besides the features themselves.
CHOSEN = ("confidence_", "chosen_", "subspace_dim_", "tried_")


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
    features: FeatureChain  # the space in which they show best
    wide: FeatureChain  # all components of the same kind
    subspace_dim: int  # of the subspaces that tell them apart; 0 if subspaces do not
    described: Source | None  # by the first step of the features, if the sample is all samples


class Choose(Stage):
    """Clusters of a sample, chosen among many and carried to all samples.

    It is begun anew if it was interrupted: it has an end in sight and its seed makes it come out
    the same. Its state is what it found. The estimator gets the features, and what was chosen, as
    attributes. `refined` says whether a refinement follows.
    """

    name = "choose"

    def __init__(self, estimator: Any, refined: bool) -> None:
        self.estimator, self.refined = estimator, refined
        self.start: Start | None = None
        self.wide: FeatureChain | None = None  # what a refinement asks the features of

    def run(self, fit: Fit) -> None:
        """Choose, unless that was done."""
        if self.start is not None:
            return
        with one_thread() if place(fit.source)[1] < CHOICE.few else nullcontext():
            found = self._choose(fit)
            if self.refined:
                self.wide = found.wide
            k = self.estimator.n_clusters
            self.estimator.model_.features, self.start = find_start(found, fit, k, self.refined)
        fit.safe_points.reached(always=True)  # it took long

    def _choose(self, fit: Fit) -> Found:
        """The clusters of a sample; the estimator keeps all that this process has tried."""
        estimator, source, group = self.estimator, fit.source, fit.group
        k, image = estimator.n_clusters, len(estimator.model_.shape) == 3
        most = min(CHOICE.most, max(CHOICE.sample, CHOICE.per_cluster * k))
        rows, samples = raw_sample(source, most, fit.seed, group)
        spaces, described = (image_spaces if image else vector_spaces)(samples, fit.device)
        n = place(source)[1]
        selection = select(spaces, rows, n, k, estimator.starts, fit.seed, fit.progress)
        sent = shared(group, _state_of(selection) if group.rank == 0 else None)
        assert sent is not None
        estimator.selection_, estimator.tried_ = selection, summary(selection)
        estimator.confidence_, estimator.chosen_ = sent.facts["confidence"], sent.facts["chosen"]
        estimator.subspace_dim_ = sent.facts["subspace_dim"]
        known = described.get(selection.best.space.wide.steps[0])
        whole = known is not None and len(rows) == n and group.size == 1
        found = Found(
            rows,
            sent.tensors["labels"].numpy(),
            _chain(sent, "features"),
            _chain(sent, "wide"),
            sent.facts["subspace_dim"],
            as_source(known, name=source.name) if whole else None,
        )
        laid_out = [space for space in spaces if space.name in sent.facts["laid_out"]]
        return found if found.subspace_dim or not laid_out else self._enlarged(found, laid_out, fit)

    def _enlarged(self, found: Found, spaces: Sequence[Space], fit: Fit) -> Found:
        """The clusters of more samples, if there are more, by a layout of these spaces."""
        estimator, source, group = self.estimator, fit.source, fit.group
        n, k = place(source)[1], estimator.n_clusters
        firsts = dict.fromkeys(space.features.steps[0] for space in spaces)
        widest = max(first._n_features_out for first in firsts)
        rows = drawn_rows(n, min(CHOICE.most, CHOICE.keep_bytes // (4 * widest)), fit.seed)
        if len(rows) <= len(found.rows):
            return found
        described = {
            first: as_source(sample(group.holding(first.source(source)), rows, fit.device, group))
            for first in firsts
        }
        steps = [(space.features.rest(), described[space.features.steps[0]]) for space in spaces]
        z = [held(rest.source(those), fit.device) for rest, those in steps]
        larger = enlarged(z, np.searchsorted(rows, found.rows), found.labels, k, fit.seed)
        facts = {"value": None if larger is None else larger.value}
        labels = found.labels if larger is None else larger.labels
        state = shared(group, State(facts, {"labels": torch.from_numpy(labels).long()}))
        assert state is not None
        if state.facts["value"] is None:
            return found
        value, method, where = state.facts["value"], f"layout, {len(rows)} samples", "best spaces"
        estimator.confidence_, estimator.chosen_ = value, f"{method} ({where})"
        estimator.tried_ |= {"space": where, "method": method, "consistency": round(value, 4)}
        return replace(found, rows=rows, labels=state.tensors["labels"].numpy())

    def state_dict(self) -> State | None:
        """The features and the clusters, once they are there."""
        start = self.start
        if start is None:
            return None
        facts = {name: plain(getattr(self.estimator, name)) for name in CHOSEN}
        facts["inertia"] = start.inertia
        tensors = {"bases": start.subspaces.bases, "labels": torch.from_numpy(start.labels)}
        if start.doubt is not None:
            tensors["doubt"] = start.doubt
        chains = {"features": self.estimator.features_, "wide": self.wide}
        return _with_chains(State(facts, tensors), chains)

    def load_state_dict(self, state: State) -> None:
        """Take over what was found."""
        for name in CHOSEN:
            setattr(self.estimator, name, state.facts[name])
        self.estimator.model_.features = _chain(state, "features")
        if "wide" in state.facts:
            self.wide = _chain(state, "wide")
        bases, labels = Subspaces(state.tensors["bases"]), state.tensors["labels"].numpy()
        self.start = Start(bases, labels, state.facts["inertia"], state.tensors.get("doubt"))

    @property
    def start_labels(self) -> NDArray:
        """Those of the start, which nothing has refined."""
        return self.found[1]

    @property
    def found(self) -> tuple[Subspaces, NDArray, float]:
        """Subspaces, labels and inertia."""
        assert self.start is not None
        return self.start.subspaces, self.start.labels, self.start.inertia


def find_start(found: Found, fit: Fit, k: int, refined: bool) -> tuple[FeatureChain, Start]:
    """All samples by grown subspaces or by votes: their features, and their clusters.

    A refinement gets every label from subspaces that the sample had no part in where that can be,
    and how doubtful it is; otherwise labels are what `predict` says.
    """
    source, device, group = fit.source, fit.device, fit.group
    if found.subspace_dim:
        features = held_features(found.wide.to(device), source, group, found.described)
        return found.wide, _grown(found, features, fit, k, refined)
    first = held_features(found.features.to(device), source, group, found.described)
    z = sample(first, found.rows, device, group).float()
    labels = torch.from_numpy(found.labels).to(device)
    last = VotedFeatures.of_sample(z, labels, k, asked(len(z), k))
    chain = FeatureChain.of_fitted([*found.features.steps, last]).to(device)
    subspaces = Subspaces.along_axes(k, 1)
    features = held_features(FeatureChain.of_fitted([last]).to(device), first, group)
    blocks = Blocks(features, torch.float32, device)
    in_place = in_order(blocks, subspaces.to(torch.float32, device), group)
    doubt = group.gather(_doubt(blocks, in_place.subspaces)) if refined else None
    return chain, Start(*in_place[:3], doubt)


def _grown(found: Found, features: Source, fit: Fit, k: int, refined: bool) -> Start:
    """Subspaces of the sample's clusters, grown on more samples."""
    seed, device, group = fit.seed, fit.device, fit.group
    z = sample(features, found.rows, device, group)
    sums = ScatterSums(k, z.shape[1], affine=False, device=device)
    sums.add(z, torch.from_numpy(found.labels).to(device))
    first = max(1, min(GROWTH.first_dim, found.subspace_dim))
    small = sums.subspaces(torch.full((k,), first)).to(z.dtype, device)
    rows, z = growth_sample(features, seed, device, group)
    dims = dimensions(first, len(rows) // k, z.shape[1]) or [first]

    def report(done: int, of: int) -> None:
        fit.progress({"stage": "grow", "round": done, "rounds": of})

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


def held_features(
    chain: FeatureChain, source: Source, group: Group, described: Source | None = None
) -> Source:
    """The features of this process's samples, in memory if they fit.

    `described` is what the first step of the chain says of them, if that is known.
    """
    found = chain.source(source) if described is None else chain.rest().source(described)
    if in_memory(place(source)[1], int(np.prod(found.shape)), group):
        found = as_source(held(found, chain.device), name=found.name)
    return group.holding(found)


def in_memory(n: int, components: int, group: Group) -> bool:
    """Whether so many components of n samples are kept."""
    largest_part = -(-n // group.size)  # the same number in all processes
    return largest_part * 4 * components <= CHOICE.keep_bytes


def drawn_rows(n: int, most: int, seed: int) -> NDArray:
    """At most so many row numbers of n, drawn by the seed, in order."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:most])


def growth_sample(
    source: Source, seed: int, device: torch.device, group: Group
) -> tuple[NDArray, Tensor]:
    """The samples that subspaces grow on: their numbers (m,), and them (m, d)."""
    rows = drawn_rows(place(source)[1], CHOICE.growth_sample, seed)
    return rows, sample(source, rows, device, group)


def sample(source: Source, rows: NDArray, device: torch.device, group: Group) -> Tensor:
    """These rows of all that the processes hold, (m, d), in every process."""
    blocks = Blocks(source, working_dtype(source.dtype), device)
    return group.gather(blocks.take(own_rows(source, rows)))


def raw_sample(source: Source, most: int, seed: int, group: Group) -> tuple[NDArray, NDArray]:
    """At most so many samples as they are stored: their numbers, and them (m, *shape)."""
    rows = drawn_rows(place(source)[1], most, seed)
    own = source.take(own_rows(source, rows))
    check_finite(own, source.name)
    single = working_dtype(own.dtype) == torch.float32
    return rows, group.gather(torch.from_numpy(own.astype("f4" if single else "f8"))).numpy()


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


# States -------------------------------------------------------------------------------------------


def _state_of(selection: Selection) -> State:
    """What was taken, in the form in which processes share it."""
    best = selection.best
    facts = {
        "subspace_dim": best.subspace_dim,
        "confidence": best.value,
        "chosen": f"{best.candidate.method} ({best.candidate.space})",
        "laid_out": [space.name for space in selection.laid_out],
    }
    state = State(facts, {"labels": torch.from_numpy(selection.labels).long()})
    return _with_chains(state, {"features": best.space.features, "wide": best.space.wide})


def _with_chains(state: State, chains: dict[str, FeatureChain | None]) -> State:
    """A state that holds feature maps too, as `_chain` finds them again."""
    for name, chain in chains.items():
        if chain is not None:
            state.facts[name], arrays = chain.state()
            state.tensors |= prefixed(name, {key: torch.from_numpy(a) for key, a in arrays.items()})
    return state


def _chain(state: State, name: str) -> FeatureChain:
    """The feature maps that a state holds under a name."""
    arrays = {key: tensor.numpy() for key, tensor in state.part(name).items()}
    return FeatureChain.from_state(state.facts[name], arrays)
