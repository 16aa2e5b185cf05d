"""The first stage of a `KSCNPlus` fit: clusters of a sample, chosen among many, for all samples.

The sample is clustered by several methods in several spaces, and what its members find back to best
is taken (`kscn.stages.select`). If subspaces describe it, they grow on more samples and label
everything. If not, the nearest of the sample vote.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
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
from kscn.stages.grow import Grown, assign_across, dimensions, fold_of, grow
from kscn.stages.run import Fit, Stage
from kscn.stages.select import FIRST_DIM, Selection, select
from kscn.stages.spaces import image_spaces, vector_spaces
from kscn.subspaces import ScatterSums, Subspaces

# Samples below which threads only wait for each other.
FEW = 1000
# Samples that candidates are made from: so many, or so many per cluster, but no more than a graph
# should have.
SAMPLE, PER_CLUSTER, MOST = 6_000, 100, 20_000
# Components are kept in memory up to this size per process, and else computed when they are read.
KEEP_BYTES = 2**29
# Samples on which subspaces grow.
GROWTH_SAMPLE = 70_000
Record = Callable[[dict[str, Any]], object]
# What the estimator knows of the choice, besides the features themselves.
CHOSEN = ("confidence_", "chosen_", "subspace_dim_", "tried_")


@dataclass(frozen=True)
class Start:
    """The clusters before the refinement.

    Attributes
    ----------
    subspaces : Subspaces
        In the space of the features.
    labels : ndarray of shape (n,)
        Of all samples.
    inertia : float
        Sum of squared distances to these subspaces.
    doubt : Tensor, shape (n,), optional
        How unsure each label is; left out where nothing is refined.
    """

    subspaces: Subspaces
    labels: NDArray
    inertia: float
    doubt: Tensor | None


class Choose(Stage):
    """Clusters of a sample, chosen among many and carried to all samples.

    It is begun anew if it was interrupted: it has an end in sight and its seed makes it come out
    the same. Its state is what it found.

    Parameters
    ----------
    estimator : KSCNPlus
        Gets the features, and what was chosen, as attributes.
    refined : bool
        Whether a refinement follows.
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

        def on_record(record: dict[str, Any]) -> bool:
            stop = fit.record(record)
            fit.safe_points.reached()  # a point to stop at
            return stop

        with one_thread() if place(fit.source)[1] < FEW else nullcontext():
            self._choose(fit, on_record)
        fit.safe_points.reached(always=True)  # it took long

    def _choose(self, fit: Fit, on_record: Record) -> None:
        estimator, model = self.estimator, self.estimator.model_
        k, image = estimator.n_clusters, len(model.shape) == 3
        found, selection = choose(fit, k, image, estimator.starts, on_record)
        estimator.selection_, estimator.tried_ = selection, summary(selection)
        estimator.confidence_, estimator.chosen_ = found.confidence, found.told
        estimator.subspace_dim_ = found.subspace_dim
        if self.refined:
            self.wide = found.wide
        model.features, self.start = find_start(found, fit, k, self.refined, on_record)

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
        chains = {"features": self.estimator.features_}
        chains |= {} if self.wide is None else {"wide": self.wide}
        return _with_chains(State(facts, tensors), chains)

    def load_state_dict(self, state: State) -> None:
        """Take over what was found."""
        for name in CHOSEN:
            setattr(self.estimator, name, state.facts[name])
        self.estimator.model_.features = chain_of(state, "features")
        if "wide" in state.facts:
            self.wide = chain_of(state, "wide")
        bases, labels = Subspaces(state.tensors["bases"]), state.tensors["labels"].numpy()
        self.start = Start(bases, labels, state.facts["inertia"], state.tensors.get("doubt"))

    @property
    def found(self) -> tuple[Subspaces, NDArray, float]:
        """Subspaces, labels and inertia."""
        assert self.start is not None
        return self.start.subspaces, self.start.labels, self.start.inertia


@dataclass(frozen=True)
class Found:
    """What was chosen on the sample.

    Attributes
    ----------
    rows, labels : ndarray of shape (m,)
        The sample and its clusters.
    features : FeatureChain
        The space in which they show best.
    wide : FeatureChain
        All components of the same kind.
    subspace_dim : int
        Of the subspaces that tell them apart; 0 if subspaces do not.
    confidence : float
        How well members find back to their cluster, from 0 to 1.
    told : str
        In words.
    described : Source, optional
        What the first step of the features says of all samples, if the sample is all of them.
    """

    rows: NDArray
    labels: NDArray
    features: FeatureChain
    wide: FeatureChain
    subspace_dim: int
    confidence: float
    told: str
    described: Source | None = None


def choose(
    fit: Fit, k: int, image: bool, starts: int, on_record: Record
) -> tuple[Found, Selection]:
    """The clusters of a sample, the same in all processes; and all that this process has tried."""
    source, seed, device, group = fit.source, fit.seed, fit.device, fit.group
    most = min(MOST, max(SAMPLE, PER_CLUSTER * k))
    rows, samples = _raw_sample(source, most, seed, group)
    spaces, described = (image_spaces if image else vector_spaces)(samples, device)
    selection = select(spaces, rows, k, starts, seed, on_record)
    best = selection.best
    known = described.get(best.space.wide.steps[0]) if len(rows) == place(source)[1] else None
    told = f"{best.candidate.method} ({best.candidate.space})"
    facts = {"subspace_dim": best.subspace_dim, "confidence": best.value, "told": told}
    state = State(facts, {"labels": torch.from_numpy(selection.labels).long()})
    chains = {"features": best.space.features, "wide": best.space.wide}
    sent = shared(group, _with_chains(state, chains) if group.rank == 0 else None)
    assert sent is not None
    return (
        Found(
            rows,
            sent.tensors["labels"].numpy(),
            chain_of(sent, "features"),
            chain_of(sent, "wide"),
            sent.facts["subspace_dim"],
            sent.facts["confidence"],
            sent.facts["told"],
            None if known is None or group.size > 1 else as_source(known, name=source.name),
        ),
        selection,
    )


def find_start(
    found: Found, fit: Fit, k: int, refined: bool, on_record: Record
) -> tuple[FeatureChain, Start]:
    """All samples by grown subspaces or by votes: their features, and their clusters.

    Parameters
    ----------
    found : Found
        The clusters of the sample.
    fit : Fit
        Has the samples.
    k : int
        How many clusters there are.
    refined : bool
        Whether a refinement follows. It gets every label from subspaces that the sample had no part
        in where that can be, and how doubtful it is; otherwise labels are what `predict` says.
    on_record : callable
        Called with a record of every round.
    """
    source, device, group = fit.source, fit.device, fit.group
    if found.subspace_dim:
        chain = found.wide
        features = held_features(chain.to(device), source, group, found.described)
        return chain, _grown(found, features, fit, k, refined, on_record)
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


def _grown(
    found: Found, features: Source, fit: Fit, k: int, refined: bool, on_record: Record
) -> Start:
    """Subspaces of the sample's clusters, grown on more samples."""
    seed, device, group = fit.seed, fit.device, fit.group
    z = sample(features, found.rows, device, group)
    sums = ScatterSums(k, z.shape[1], affine=False, device=device)
    sums.add(z, torch.from_numpy(found.labels).to(device))
    first = max(1, min(FIRST_DIM, found.subspace_dim))
    small = sums.subspaces(torch.full((k,), first)).to(z.dtype, device)
    rows, z = growth_sample(features, seed, device, group)
    dims = dimensions(first, len(rows) // k, z.shape[1]) or [first]

    def tell(done: int, of: int) -> None:
        on_record({"stage": "grow", "round": done, "rounds": of})

    fold = fold_of(torch.from_numpy(rows), seed).to(device)
    grown = grow(z, fold, small.assign(z)[0], k, dims, tell, across=refined)
    grown = Grown(group.agree_on(grown.whole), [group.agree_on(part) for part in grown.without])
    blocks = Blocks(features, torch.float32, device)
    if not refined:
        return Start(*in_order(blocks, grown.whole, group)[:3], None)
    across = assign_across(blocks, place(features)[0], grown.without, seed)
    labels = group.gather(across.labels).cpu().numpy()
    order = canonical_order(labels, k)
    (inertia,) = group.add(float(across.nearest.double().sum()))
    whole = grown.whole.reordered(torch.from_numpy(order).to(device))
    doubt = group.gather(_relative(across.nearest, across.second)).cpu()
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
    return largest_part * 4 * components <= KEEP_BYTES


def drawn_rows(n: int, most: int, seed: int) -> NDArray:
    """At most so many row numbers of n, drawn by the seed, in order."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:most])


def growth_sample(
    source: Source, seed: int, device: torch.device, group: Group
) -> tuple[NDArray, Tensor]:
    """The samples that subspaces grow on: their numbers (m,), and them (m, d)."""
    rows = drawn_rows(place(source)[1], GROWTH_SAMPLE, seed)
    return rows, sample(source, rows, device, group)


def sample(source: Source, rows: NDArray, device: torch.device, group: Group) -> Tensor:
    """These rows of all that the processes hold, (m, d), in every process."""
    blocks = Blocks(source, working_dtype(source.dtype), device)
    return group.gather(blocks.take(own_rows(source, rows)))


def _raw_sample(source: Source, most: int, seed: int, group: Group) -> tuple[NDArray, NDArray]:
    """At most so many samples as they are stored: their numbers, and them (m, *shape)."""
    rows = drawn_rows(place(source)[1], most, seed)
    own = source.take(own_rows(source, rows))
    check_finite(own, source.name)
    small = own.dtype.kind in "biu" and own.dtype.itemsize <= 2
    exact = small or (own.dtype.kind == "f" and own.dtype.itemsize <= 4)
    return rows, group.gather(torch.from_numpy(own.astype("f4" if exact else "f8"))).numpy()


def _doubt(blocks: Blocks, subspaces: Subspaces) -> Tensor:
    """How doubtful the label of every sample is, (n,)."""
    if subspaces.n_clusters == 1:
        return torch.zeros(len(blocks))
    pieces = []
    for _, z in blocks:
        two = subspaces.residuals(z).topk(2, dim=1, largest=False).values
        pieces.append(_relative(two[:, 0], two[:, 1]).cpu())
    return torch.cat(pieces)


def _relative(nearest: Tensor, second: Tensor) -> Tensor:
    """Distance to the nearest subspace over that to the next: from 0, sure, to 1.

    Not their difference: a rare shape is far from all of them, but may be clear.
    """
    return nearest.double() / second.double().clamp(min=1e-30)


def _with_chains(state: State, chains: dict[str, FeatureChain]) -> State:
    """A state that holds feature maps too, as `chain_of` finds them again."""
    for name, chain in chains.items():
        state.facts[name], arrays = chain.state()
        state.tensors |= prefixed(name, {key: torch.from_numpy(a) for key, a in arrays.items()})
    return state


def chain_of(state: State, name: str) -> FeatureChain:
    """The feature maps that a state holds under a name."""
    arrays = {key: tensor.numpy() for key, tensor in state.part(name).items()}
    return FeatureChain.from_state(state.facts[name], arrays)
