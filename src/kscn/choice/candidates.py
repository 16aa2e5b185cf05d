"""Candidates: cheap clusterings of a sample, by several methods in several spaces.

*Spaces* are descriptions of the same samples. Groups may lie near subspaces through the mean at
unit norm (components), or differ only in directions of little variance (whitened). Images have
these two kinds twice, of their pixels and of their scattering coefficients. Vectors have two more:
groups may lie around points (distances) or near subspaces through the origin (lines). All are
computed from the principal components of a sample.

In every space: spectral clustering of the neighbour graph, by distance and by angle; k-means; and
k-subspaces; for few vectors, spectral clustering of local subspaces. Of several spaces together:
k-means of a layout of their joint graph. No space and no method is right everywhere (k-subspaces on
handwritten digits, graphs on single cells, points on flowers), so all are tried, and
`kscn.choice.select` weighs them. A candidate is labels of the sample and where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor, nn

from kscn.data import as_source
from kscn.features import Components, block_means, scattering_steps
from kscn.neighbours import (
    Neighbours,
    layout_clusters,
    local_subspace_clusters,
    nearest,
    nearest_distinct,
    similarity_graph,
)
from kscn.neighbours.consistency import CONSISTENCY
from kscn.neighbours.graph import graph_size
from kscn.neighbours.local import affordable
from kscn.neighbours.spectral import graph_clusters
from kscn.nn import InputScaling
from kscn.nn.rows import through
from kscn.runtime.lazy import Lazy
from kscn.runtime.moments import scaling_of
from kscn.subspaces.search import Problem, run_chain


@dataclass(frozen=True)
class Rules:
    """The numbers of spaces and candidates."""

    most_pixels: int = 2**12  # numbers of an image that is described by its pixels
    # Components at unit norm, and numbers of components that are whitened.
    plain: int = 150
    whitened: tuple[int, ...] = (30, 60, 300)
    samples_per_component: int = 4  # whitening with fewer describes chance
    # Dimensions up to which directions are too few to judge by: on a circle every arc is a group.
    too_few: int = 3
    small_mean: float = 0.01  # share of the mean square below which a mean makes no difference
    # Columns have different units if distances go by fewer than this many of them in effect, and
    # their deviations differ by this factor, and they are correlated: principal components are not.
    few_columns: float = 2.0
    apart: float = 6.0
    correlated: float = 0.01
    compared: int = 1000  # columns at most whose correlations are computed
    # Neighbours in a graph, as a share of the root of the members of a usual cluster. A second
    # graph of 0.9 and a second reading of each changed no result but by chance, for twice the time.
    neighbours: float = 0.5
    same: float = 0.95  # share of neighbours by angle that are those by distance: one graph does
    # Dimension of subspaces, if clusters have so many members for each, up to a part of the space.
    # Smaller ones as well changed no result of 25.
    dim: int = 15
    members_per_dim: int = 15
    part: int = 3
    local_dim: int = 3  # of local affine subspaces
    kmeans_starts: int = 3


RULES = Rules()
LAYOUT = "layout"
WHITENED = "whitened"


# Spaces -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """One description of the samples."""

    name: str  # of what, and how: "pixels, 60 whitened"
    features: nn.ModuleList  # from samples to this description
    wide: nn.ModuleList  # and to all components of its kind at unit norm, where subspaces may grow
    z: Tensor  # (m, d), of the samples that candidates are made from
    lines: bool = True  # whether angles mean something, so that there may be subspaces through 0
    judges: bool = True  # whether candidates are measured in it


# Spaces, and what all steps but the last say of the samples, by the last but one, where that takes
# long.
Described = tuple[list[Space], dict[nn.Module, NDArray]]


def image_spaces(images: NDArray, device: torch.device) -> Described:
    """Spaces of the pixels and of the scattering coefficients of images (m, [c,] h, w)."""
    found, described = [], {}
    source, shape = as_source(images), images.shape[1:]
    scaled = scaling_of(source, image=False)
    pixels = nn.ModuleList([scaled, *block_means(shape, _pixel_side(shape))])
    for name, first in (("scattering", scattering_steps(shape)), ("pixels", pixels)):
        z = Lazy(source, first.to(device), device).all()
        described[first[-1]] = z.cpu().numpy()
        found += _component_spaces(name, first, z)
    return found, described


def _pixel_side(shape: tuple[int, ...]) -> int:
    """The longer side of images ([c,] h, w) that are described by their pixels, at most.

    Larger images say the same at a lower resolution, and components of all their pixels would take
    too long.
    """
    *channels, height, width = shape
    block = 1
    while math.prod(channels) * -(-height // block) * -(-width // block) > RULES.most_pixels:
        block += 1
    longest = max(height, width)
    return longest if block == 1 else max(8, -(-longest // block))


def vector_spaces(vectors: NDArray, device: torch.device) -> Described:
    """Spaces of vectors (m, d): of their components, of the distances, of lines to the origin.

    Columns of a table that have different units are divided by their deviations first.
    """
    kind, source = "vectors", as_source(vectors)

    def at(scale: InputScaling) -> Tensor:
        return Lazy(source, [scale.to(device)], device).all()

    scaled = scaling_of(source, image=False)
    at_scale = at(scaled)
    rows = at_scale.cpu().numpy()
    if different_units(rows):
        spread = torch.from_numpy(rows.std(axis=0, dtype="f8"))
        kind, scaled = "standardised columns", scaled.per_column(spread)
        at_scale = at(scaled)
    found = _component_spaces(kind, nn.ModuleList([scaled]), at_scale)
    widest = _most_components(RULES.plain, at_scale)

    def space(name: str, first: InputScaling, rows: Tensor, lines: bool, **params: Any) -> Space:
        last = Components.fit(rows, widest, **params)
        steps = nn.ModuleList([first, last])
        z = through([last], rows)
        return Space(f"{kind}, {name}", steps, steps, z, lines, not lines or _tells(z))

    found.append(space("distances", scaled, at_scale, False, unit_norm=False, constant=1.0))
    # The same factor, but no shift: subspaces through the origin stay subspaces.
    origin = InputScaling.by(torch.zeros_like(scaled.shift), scaled.factor)
    about = at(origin)
    mean_square = float(about.square().sum(dim=1).mean())
    if float(about.mean(dim=0).square().sum()) > RULES.small_mean * mean_square:
        found.append(space("lines", origin, about, True, centre=False))
    return found, {}  # a first step that only scales is soon done again


def different_units(vectors: NDArray) -> bool:
    """Whether the columns of vectors (m, d) are numbers that cannot be compared as they are.

    Such as a mass in grams beside lengths in millimetres: distances are then those of the masses,
    and so is every cluster. The effective number of columns is that of equal variances which would
    have the same sum and sum of squares.
    """
    varying = vectors[:, vectors.std(axis=0) > 0].astype("f8")
    variance = varying.var(axis=0)
    if len(variance) <= RULES.few_columns or variance.max() < RULES.apart**2 * variance.min():
        return False
    if variance.sum() ** 2 >= RULES.few_columns * (variance**2).sum():
        return False
    every = math.ceil(len(variance) / RULES.compared)
    squared = np.corrcoef(varying[:, ::every], rowvar=False) ** 2
    chance = 1 / len(varying)  # of the square of a correlation
    return float(squared[~np.eye(len(squared), dtype=bool)].mean()) > RULES.correlated + chance


def _component_spaces(name: str, first: nn.ModuleList, described: Tensor) -> list[Space]:
    """Components at unit norm, and fewer or more of them whitened, of what the first steps make."""
    widest = _most_components(max(RULES.plain, *RULES.whitened), described)
    every = Components.fit(described, widest, unit_norm=False)
    known = through([every], described)
    wide = nn.ModuleList([*first, every.reduced(widest, unit_norm=True)])

    def space(what: str, judges: bool, **params: Any) -> Space:
        last = every.reduced(unit_norm=True, **params)
        z = last.of_components(known).contiguous()
        steps = nn.ModuleList([*first, last])
        return Space(f"{name}, {what}", steps, wide, z, judges=judges and _tells(z))

    found = [space("components", True, n_components=min(RULES.plain, widest))]
    room = max(2, len(described) // RULES.samples_per_component)
    counts = list(dict.fromkeys(min(count, widest, room) for count in RULES.whitened))
    for count in counts:
        # The smallest says much the same as the next.
        judges = count == counts[-1] or count != RULES.whitened[0]
        found.append(space(f"{count} {WHITENED}", judges, n_components=count, whiten=True))
    return found


def _tells(z: Tensor) -> bool:
    """Whether rows z (m, d) at unit norm keep enough of the samples to judge clusterings by."""
    return z.shape[1] > RULES.too_few


def _most_components(wanted: int, described: Tensor) -> int:
    """As many components as wanted, or as so many samples of so many numbers have."""
    return min(wanted, max(1, len(described) - 1), described.shape[1])


# Candidates ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """Labels (m,) of the sample, the space that they were found in, and by what."""

    labels: NDArray
    space: str
    method: str

    @property
    def kind(self) -> str:
        """The method without its numbers."""
        return self.method.split(",")[0]


def neighbours_of(z: Tensor, k: int) -> Neighbours:
    """As many neighbours as graphs, layouts and questions need."""
    return nearest_distinct(z, max(CONSISTENCY.asked, graph_size(len(z), k)))


def candidates(
    space: Space, near: Neighbours, k: int, starts: int, seed: int
) -> Iterator[Candidate]:
    """All candidates of one space."""
    size = graph_size(len(space.z), k, RULES.neighbours)
    yield _spectral(space, near, k, size, "distance", seed)
    if space.lines:
        angles = nearest(space.z, size, "absolute cosine")
        same = angles.index == near.index[:, :size]
        if float(same.float().mean()) < RULES.same:
            yield _spectral(space, angles, k, size, "absolute cosine", seed)
    rows = space.z.cpu().numpy()
    means = KMeans(k, n_init=RULES.kmeans_starts, random_state=seed).fit_predict(rows)
    yield Candidate(means, space.name, "k-means")
    if space.lines:
        if space.z.shape[1] > 1:
            yield _k_subspaces(space, k, starts, seed)
    elif affordable(len(rows), rows.shape[1], k, RULES.local_dim, affine=True):
        labels = local_subspace_clusters(space.z, k, RULES.local_dim, affine=True, seed=seed)
        yield Candidate(labels, space.name, f"local subspaces, dimension {RULES.local_dim}")


def laid_out(
    near: Sequence[Neighbours],
    groups: Mapping[str, Sequence[int]],
    k: int,
    seed: int,
    measure: Callable[[NDArray], float],
) -> list[Candidate]:
    """Clusters of layouts of the joint neighbour graphs of named groups of spaces."""
    found = layout_clusters(near, list(groups.values()), k, seed, measure)
    return [Candidate(labels, name, LAYOUT) for labels, name in zip(found, groups, strict=True)]


def _spectral(
    space: Space, near: Neighbours, k: int, size: int, metric: str, seed: int
) -> Candidate:
    labels = graph_clusters(similarity_graph(near, size, metric), k, seed)
    return Candidate(labels, space.name, f"graph, {size} nearest by {metric}")


def _k_subspaces(space: Space, k: int, starts: int, seed: int) -> Candidate:
    m, d = space.z.shape
    dim = max(1, min(RULES.dim, d // RULES.part, m // (RULES.members_per_dim * k)))
    generator = torch.Generator().manual_seed(seed)
    dims = torch.full((k,), dim)
    problem = Problem(space.z, None, dims, affine=False, trim=0.0, generator=generator)
    found, _ = run_chain(problem, starts, rounds=0)
    labels = found.assign(space.z)[0].cpu().numpy()
    return Candidate(labels, space.name, f"k-subspaces, dimension {dim}")
