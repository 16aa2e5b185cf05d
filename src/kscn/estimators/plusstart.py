"""The start of `KSCNPlus`: k-subspaces on fixed features of all samples, then larger subspaces."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from kscn.data import Source, as_source
from kscn.estimators.labels import canonical_order, in_order
from kscn.estimators.linear import KSubspaces
from kscn.estimators.plusstate import Start
from kscn.estimators.representation import CLEAR, Candidate, Representation, sample
from kscn.features import FeatureChain
from kscn.subspaces import Subspaces
from kscn.training.blocks import Blocks, held, working_dtype
from kscn.training.distributed import Group, place
from kscn.training.growth import Grown, assign_across, dimensions, fold_of, grow
from kscn.training.opinion import SecondOpinion

# Components are kept in memory up to this size per process, and else computed when they are read.
KEEP_BYTES = 2**29
# Samples on which subspaces grow.
GROWTH_SAMPLE = 70_000

Hear = Callable[[dict[str, Any]], bool]


def find_start(
    chosen: Representation,
    source: Source,
    *,
    grows: bool,
    refined: bool,
    device: torch.device,
    seed: int,
    hear: Hear,
    group: Group,
) -> tuple[FeatureChain, Source, Start]:
    """The features that subspaces are in, those of this process's samples, and all clusters.

    Parameters
    ----------
    chosen : Representation
        Where to search, and what short runs found there.
    source : Source
        The samples of this process.
    grows : bool
        Whether subspaces grow where clusters are large enough.
    refined : bool
        Whether a refinement follows. It gets every label from subspaces that the sample had no part
        in, and how doubtful it is; otherwise labels are what `predict` says.
    device, seed
        Of the fit.
    hear : callable
        Hears of every iteration.
    group : Group
        The processes that hold all samples together.
    """
    n, k = place(source)[1], chosen.subspaces.n_clusters
    members, dim = min(n, GROWTH_SAMPLE) // k, chosen.candidate.subspace_dim
    grows = grows and chosen.ample
    dims = dimensions(dim, members, chosen.n_components) if grows else []
    kept = in_memory(n, chosen.n_components, group)
    rough, fine = _features(chosen, source, kept, bool(dims), device)
    rough, fine = group.holding(rough), group.holding(fine)
    begin = group.agree_on(chosen.start(rough, fine, seed, hear, group))
    linear = KSubspaces(
        k,
        subspace_dim=dim,
        init=begin.bases.cpu().numpy(),
        # Every iteration reads all features: one pass has to do where they are computed anew.
        max_iter=100 if kept else 1,
        tol=1e-5,
        device=str(device),
        random_state=seed,
        callbacks=[lambda _, record: hear({**record, "stage": "start"})],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        linear.fit(rough)
    if not dims:
        found = Subspaces(torch.from_numpy(linear.subspaces_))
        doubt = group.gather(_doubt(linear, rough)) if refined else None
        return chosen.features, rough, Start(found, linear.labels_, linear.inertia_, doubt)

    rows, z = sample(fine, GROWTH_SAMPLE, seed, device, group)
    labels = torch.from_numpy(linear.labels_[rows]).long().to(device)
    fold = fold_of(torch.from_numpy(rows), seed).to(device)

    def tell(done: int, of: int) -> None:
        hear({"stage": "grow", "round": done, "rounds": of})

    unsure = chosen.agreement < CLEAR
    grown = grow(z, fold, labels, k, dims, tell, even=unsure)
    grown = Grown(group.agree_on(grown.whole), [group.agree_on(part) for part in grown.without])
    start = _assigned(Blocks(fine, torch.float32, z.device), grown, refined, seed, group)
    return chosen.wide, fine, start


def second_opinion(
    features: Source, start: Start, seed: int, device: torch.device, group: Group
) -> SecondOpinion:
    """Subspaces like those of the start, for whatever clusters the refinement will have."""
    rows, z = sample(features, GROWTH_SAMPLE, seed, device, group)
    dim = start.subspaces.bases.shape[2]
    return SecondOpinion(features, z, torch.from_numpy(rows).to(device), dim, seed, group)


def held_features(chain: FeatureChain, source: Source, group: Group) -> Source:
    """The features of this process's samples, in memory if they fit."""
    found = chain.source(source)
    if in_memory(place(source)[1], int(np.prod(found.shape)), group):
        found = as_source(held(found, chain.device), name=found.name)
    return group.holding(found)


def in_memory(n: int, components: int, group: Group) -> bool:
    """Whether so many components of n samples are kept."""
    largest_part = -(-n // group.size)  # the same number in all processes
    return largest_part * 4 * components <= KEEP_BYTES


def _features(
    chosen: Representation, source: Source, kept: bool, wide: bool, device: torch.device
) -> tuple[Source, Source]:
    """What is searched, and what subspaces grow in if they do."""
    if wide and kept:
        components = held(chosen.components.source(source), device)
        return chosen.seen(components), chosen.seen(
            components, Candidate(chosen.n_components, False, 1)
        )
    rough = chosen.features.source(source)
    if kept:
        rough = as_source(held(rough, device), name=rough.name)
    return rough, chosen.wide.source(source) if wide else rough


def _assigned(blocks: Blocks, grown: Grown, refined: bool, seed: int, group: Group) -> Start:
    """All samples by the grown subspaces."""
    k = grown.whole.n_clusters
    if not refined:
        return Start(*in_order(blocks, grown.whole, group), None)
    across = assign_across(blocks, place(blocks.source)[0], grown.without, seed)
    labels = group.gather(across.labels).cpu().numpy()
    order = canonical_order(labels, k)
    (inertia,) = group.add(float(across.nearest.double().sum()))
    found = grown.whole.reordered(torch.from_numpy(order))
    doubt = group.gather(_relative(across.nearest, across.second)).cpu()
    return Start(found, np.argsort(order)[labels], inertia, doubt)


def _doubt(linear: KSubspaces, features: Source) -> Tensor:
    """How doubtful the label of every sample is, (n,)."""
    if linear.n_clusters == 1:
        return torch.zeros(len(features))
    pieces = []
    for _, z in Blocks(features, working_dtype(features.dtype), linear._device()):
        two = torch.from_numpy(linear.residuals(z)).topk(2, dim=1, largest=False).values
        pieces.append(_relative(two[:, 0], two[:, 1]))
    return torch.cat(pieces)


def _relative(nearest: Tensor, second: Tensor) -> Tensor:
    """Distance to the nearest subspace over that to the next: from 0, sure, to 1.

    Not their difference: a rare shape is far from all of them, but may be clear.
    """
    return nearest.double() / second.double().clamp(min=1e-30)
