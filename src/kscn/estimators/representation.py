"""Choosing, without labels, the features in which samples lie near subspaces, and a start there.

A sample of the data is described by scattering coefficients (images) or by itself (vectors) and
reduced to principal components. How many of them, whether each is divided by its spread
(whitening), and the dimension of the subspaces are open: too much depends on the data. So every
candidate is tried, with many short runs of k-subspaces, and the one whose best runs agree most with
each other is taken. A representation that supports the clustering repeats it; one that does not
gives every run its own.

Where none supports it, agreement favours representations in which all runs make the same mistake.
Then they are compared in one space, by what clusters cost there that are made even.

Vectors may be of any kind. In many sets groups are around points, not near subspaces that go
through the mean of all samples, where a group and its mirror image are one. So points, which are
what k-means looks for, are tried as well, and what counts is which clusters explain samples that
they were not fitted to (kscn.subspaces.density). Where nothing else is clearly better, it stays
with points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source, as_source
from kscn.features import FeatureChain, PCAFeatures, ScatteringFeatures
from kscn.features.base import FeatureMap
from kscn.subspaces import Subspaces
from kscn.subspaces.density import clearly_better, held_out_densities
from kscn.subspaces.ensemble import Agreed, agree, cost_near, fitted, settled
from kscn.subspaces.search import Candidates, Problem
from kscn.training.blocks import Blocks, held, working_dtype
from kscn.training.device import CPU
from kscn.training.distributed import ALONE, Group, own_rows, place

# Samples on which components are found and representations compared.
SAMPLE = 12_000
# Runs that are less alike than this on the sample go on with more samples.
CLEAR = 0.87
LARGE_SAMPLE = 70_000
# Dimension of the subspaces by which they are compared, in the space of all components.
COMPARED_DIM = 30
# A subspace needs many members per dimension, or it fits anything.
MEMBERS_PER_DIM = 15
# Components of images, for subspaces that grow when the clusters are known.
WIDE = 300
# With fewer images per cluster only the representation of the fewest components is tried: the
# others describe what these few have in common by chance. Runs that are less alike than this find
# nothing in it either; then points have to do.
FEW_MEMBERS = 60
ALIKE = 0.6
# Of homogeneous coordinates, over the length of samples; residuals are then off by a hundredth.
CONSTANT = 10.0
# Components in which clusters of vectors are Gaussians.
DENSITY_DIM = 30


@dataclass(frozen=True)
class Candidate:
    """Principal components to keep, whether to whiten them, and the dimension of subspaces.

    Affine subspaces are linear ones of homogeneous coordinates; their dimension counts one more, so
    that a point has dimension 1.
    """

    components: int
    whiten: bool
    subspace_dim: int
    affine: bool = False


# What served on images and embeddings of very different kinds: many components as they are, or
# fewer of them whitened, with subspaces of a tenth to a third of that dimension.
CANDIDATES = (
    Candidate(150, False, 15),
    Candidate(60, False, 6),
    Candidate(60, True, 20),
    Candidate(30, True, 10),
)
# For vectors besides: points, as k-means has them, and points in whitened components.
POINTS = (Candidate(150, False, 1, affine=True), Candidate(30, True, 1, affine=True))


# A candidate, what runs agreed on, and the problem that they solved.
Tried = tuple[Candidate, Agreed, Problem]


@dataclass(frozen=True)
class Representation:
    """What was chosen, the subspaces that runs on the sample agreed on, and all of the runs.

    Attributes
    ----------
    components : FeatureChain
        From samples to principal components, as many as the candidate has or more.
    candidate : Candidate
        What is searched of them.
    subspaces : Subspaces
        In the features of the candidate.
    agreement : float
        Of the best runs.
    runs : list of Candidates
        Where all of them ended.
    ample : bool
        Whether these are images, and many per cluster: then runs that disagree go on with more of
        them, and subspaces can grow.
    """

    components: FeatureChain
    candidate: Candidate
    subspaces: Subspaces
    agreement: float
    runs: list[Candidates]
    ample: bool

    @property
    def features(self) -> FeatureChain:
        """From samples to the features of the candidate."""
        return _reduced(self.components, self.candidate)

    @property
    def wide(self) -> FeatureChain:
        """From samples to all components, at unit norm."""
        return _reduced(self.components, Candidate(self.n_components, False, 1))

    @property
    def n_components(self) -> int:
        """How many there are."""
        return int(self.components.steps[-1]._n_features_out)

    def seen(self, components: Tensor, one: Candidate | None = None) -> Source:
        """The candidate's features (or another's) of samples whose components are known."""
        pca = self.components.steps[-1]
        assert isinstance(pca, PCAFeatures)
        chosen = self.candidate if one is None else one
        z = _described(components, pca.explained_variance_, chosen)
        return as_source(z, name="features")

    def start(
        self,
        features: Source,
        wide: Source,
        seed: int,
        on_record: Callable[[dict[str, Any]], object],
        group: Group = ALONE,
    ) -> Subspaces:
        """Where to begin with the features of all samples, of which each process holds a part.

        What the runs agreed on, if they did; else those of many images go on with more of them, and
        the one is taken that leads to even clusters of the lowest cost in the space `wide`.
        """
        if self.agreement >= CLEAR or not self.ample:
            return self.subspaces
        device = self.components.device
        z = sample(features, LARGE_SAMPLE, seed, device, group)[1].float()
        problem = _problem(z, self.subspaces.n_clusters, self.candidate, seed)

        def tell(done: int, of: int, lowest: float) -> None:
            on_record({"stage": "settle", "round": done, "rounds": of, "objective": lowest})

        ended = settled(problem, self.runs, tell)
        few = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:SAMPLE]
        some = sample(wide, LARGE_SAMPLE, seed, device, group)[1][few].float()
        common = _comparison(some, self.subspaces.n_clusters, seed)
        own = _problem(z[few], common.k, self.candidate, seed)
        costs = [cost_near(own, common, run[few]) for run in ended]
        return fitted(problem, ended[costs.index(min(costs))])


def candidates(n_samples: int, n_features: int, n_clusters: int) -> list[Candidate]:
    """The representations to try for samples of a size; all of them fit the data."""
    room = max(1, n_samples // (MEMBERS_PER_DIM * n_clusters))
    found = []
    for one in CANDIDATES:
        components = min(one.components, n_features, max(2, n_samples // 4))
        dim = max(1, min(one.subspace_dim * components // one.components, room, components - 1))
        found.append(Candidate(components, one.whiten, dim))
    return list(dict.fromkeys(found))


def points(n_samples: int, n_features: int) -> list[Candidate]:
    """Candidates around points, for samples of a size."""
    most = min(n_features, max(2, n_samples // 4))
    return [replace(one, components=min(one.components, most)) for one in POINTS]


def choose(
    source: Source,
    n_clusters: int,
    tried: Sequence[Candidate] | None,
    *,
    image: bool,
    starts: int,
    seed: int,
    on_record: Callable[[dict[str, Any]], object],
    device: torch.device = CPU,
    group: Group = ALONE,
) -> Representation:
    """The representation whose best runs agree most, and the subspaces that they agree on.

    Where those of images agree nowhere, the one whose best runs lead to the even clusters that cost
    least (their median, in the space of all components). Of vectors, the one with the most probable
    clusters, be it those that runs agree on or those of a single run.

    Parameters
    ----------
    source : Source
        All samples, or the part of this process.
    n_clusters : int
        Subspaces to find.
    tried : sequence of Candidate or None
        What to choose from; None for `candidates`, and for vectors `points` too.
    image : bool
        Whether samples are images and get scattering features.
    starts : int
        Runs per candidate; the third of them with the lowest objective counts.
    seed : int
        Of the sample and of the runs.
    on_record : callable
        Hears of every run.
    device : torch.device
        Where all of this is computed, and the features from then on.
    group : Group
        The processes that hold all samples together. All search the same sample.
    """
    maps = ScatteringFeatures().to(device).fit(source) if image else None
    described = source if maps is None else maps.source(source)
    _, some = sample(group.holding(described), SAMPLE, seed, device, group)
    few = as_source(some, name=source.name)
    room = WIDE if image and tried is None else 0
    scarce = image and place(source)[1] < FEW_MEMBERS * n_clusters
    if tried is None:
        tried = candidates(len(few), few.shape[0], n_clusters)
        if scarce:
            tried = [tried[-1], points(len(few), few.shape[0])[0]]
        if not image:  # first what is taken if nothing is clearly better
            tried = [*points(len(few), few.shape[0]), *tried]
    most = max(min(room, len(few) // 4), *(one.components for one in tried))
    widest = min(most, len(few), few.shape[0])
    pca = PCAFeatures(widest, unit_norm=False).to(device).fit(few)
    coordinates = held(pca.source(few), device)  # in float32, also of float64 vectors
    found: list[Tried] = []
    for number, one in enumerate(tried, start=1):
        z = _described(coordinates, pca.explained_variance_, one)

        def tell(done: int, of: int, lowest: float, number: int = number) -> None:
            on_record(
                {
                    "stage": "search",
                    "representation": number,
                    "representations": len(tried),
                    "round": done + (number - 1) * of,
                    "rounds": of * len(tried),
                    "objective": lowest,
                }
            )

        problem = _problem(z, n_clusters, one, seed)
        agreed = agree(problem, starts, max(1, starts // 3), report=tell)
        found.append((one, agreed, problem))
    if not image:
        one, agreed, problem = _most_probable(found, coordinates)
    elif scarce and len(found) > 1:
        one, agreed, problem = found[0 if found[0][1].agreement >= ALIKE else 1]
    else:
        one, agreed, problem = max(found, key=lambda tried: tried[1].agreement)
        if agreed.agreement < CLEAR:
            space = _described(coordinates, pca.explained_variance_, Candidate(widest, False, 1))
            one, agreed, problem = _least_costly(found, _comparison(space, n_clusters, seed))
    subspaces = fitted(problem, agreed.labels)
    shape = source.shape if maps is None else few.shape
    steps: list[FeatureMap] = [_first(pca, Candidate(widest, False, 1), shape, unit_norm=False)]
    components = FeatureChain.of_fitted(steps if maps is None else [maps, *steps])
    return Representation(
        components, one, subspaces, agreed.agreement, agreed.runs, image and not scarce
    )


def sample(
    source: Source, most: int, seed: int, device: torch.device, group: Group
) -> tuple[NDArray, Tensor]:
    """At most so many of the rows that all processes hold: their numbers (m,), and them (m, d)."""
    rows = np.sort(np.random.default_rng(seed).permutation(place(source)[1])[:most])
    blocks = Blocks(source, working_dtype(source.dtype), device)
    return rows, group.gather(blocks.take(own_rows(source, rows)))


def _problem(z: Tensor, n_clusters: int, one: Candidate, seed: int) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    dims = torch.full((n_clusters,), one.subspace_dim)
    return Problem(z, None, dims, affine=False, trim=0.0, generator=generator)


def _most_probable(found: Sequence[Tried], coordinates: Tensor) -> Tried:
    """The clusters that explain samples best that they were not fitted to, in doubt the first.

    Those that runs agree on count, and those of each of the best runs.
    """
    each = [(one, own, problem) for one, a, problem in found for own in a.alternatives()]
    mixed = torch.from_numpy(np.random.default_rng(0).permutation(len(coordinates)))
    z = coordinates[mixed, :DENSITY_DIM]
    return each[clearly_better([held_out_densities(z, a.labels[mixed]) for _, a, _ in each])]


def _least_costly(found: Sequence[Tried], common: Problem) -> Tried:
    """The representation whose best runs lead to even clusters of the lowest cost, as a rule."""
    usual = [np.median([cost_near(own, common, run) for run in a.best]) for _, a, own in found]
    return found[int(np.argmin(usual))]


def _comparison(z: Tensor, n_clusters: int, seed: int) -> Problem:
    """The space in which runs of different representations have prices, (m, d) of its samples."""
    room = len(z) // (MEMBERS_PER_DIM * n_clusters)
    dim = max(1, min(COMPARED_DIM, z.shape[1] // 3, room))
    return _problem(z, n_clusters, Candidate(z.shape[1], False, dim), seed)


def _described(coordinates: Tensor, variance: NDArray, one: Candidate) -> Tensor:
    """Components of the sample as a candidate has them, at unit norm."""
    z = coordinates[:, : one.components]
    if one.whiten:
        spread = torch.from_numpy(np.sqrt(variance[: one.components])).to(z)
        z = z / torch.where(spread > 1e-6 * spread[0], spread, torch.inf)
    if one.affine:
        length = float(z.square().sum(dim=1).mean().sqrt()) or 1.0
        z = torch.nn.functional.pad(z, (0, 1), value=CONSTANT * length)
    return torch.nn.functional.normalize(z, dim=1).contiguous()


def _reduced(components: FeatureChain, one: Candidate) -> FeatureChain:
    """The chain that ends with what a candidate has of the components."""
    *before, pca = components.steps
    assert isinstance(pca, PCAFeatures)
    return FeatureChain.of_fitted([*before, _first(pca, one, pca.sample_shape_)])


def _first(
    pca: PCAFeatures, one: Candidate, shape: tuple[int, ...], unit_norm: bool = True
) -> PCAFeatures:
    """The first components of a fitted map, without fitting again."""
    config, arrays = pca.state()
    params = {
        "n_components": one.components,
        "whiten": one.whiten,
        "unit_norm": unit_norm,
        "constant": CONSTANT * one.affine,
    }
    config = config | {"params": params, "shape": list(shape)}
    kept = {name: arrays[name][: one.components] for name in ("components", "explained_variance")}
    return PCAFeatures.from_state(config, arrays | kept).to(pca.device)
