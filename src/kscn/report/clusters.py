"""One card per cluster: who its members are, what its subspace means, why it has its dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Dataset
from kscn.report import charts
from kscn.report.along import along
from kscn.report.members import Extremes
from kscn.report.pictures import Painter, data_uri, is_image
from kscn.report.spaces import Drawable, SampleSpace, SubspaceSpace
from kscn.report.survey import Survey

# Cards in full; further clusters are in the table of sizes only.
CARDS = 60
_MEMBERS = 10
_DIRECTIONS = 5
_LOADINGS = 6
# Members that are read where a mean or a direction is drawn from them, and numbers in all of them.
_READ, _READ_NUMBERS = 400, 2**23
# Standard deviations from the mean at which a direction is shown.
_STOPS = (-2.0, -1.0, 0.0, 1.0, 2.0)


@dataclass(frozen=True)
class Member:
    """A sample that stands for something.

    Attributes
    ----------
    index : int
        Of the sample.
    name : str
        What it is called.
    picture : str
        Empty for vectors.
    note, mark : str
        What is to be said about it, in words and in brief.
    """

    index: int
    name: str
    picture: str
    note: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Direction:
    """A direction of a subspace, as pictures along it or as loadings of features.

    Attributes
    ----------
    share : float
        Of the variance of the members within the subspace.
    change : str
        Picture of what grows and shrinks.
    walk : list of (str, str)
        Pictures from -2 to 2 standard deviations, or of members far one way and the other, each
        with its place in words.
    loadings : list of (str, float)
        Features that change the most, by name, from -1 to 1.
    """

    share: float
    change: str
    walk: list[tuple[str, str]]
    loadings: list[tuple[str, float]]


@dataclass(frozen=True)
class Cluster:
    """A cluster as its card shows it."""

    number: int
    colour: str
    size: int
    share: float
    bar: float
    dim: int | None = None
    outside: float | None = None
    mean: str = ""
    examples: tuple[Member, ...] = ()
    typical: tuple[Member, ...] = ()
    borderline: tuple[Member, ...] = ()
    outliers: tuple[Member, ...] = ()
    directions: tuple[Direction, ...] = ()
    held: float | None = None
    spectrum: Markup | None = None
    most: str | None = None
    purity: float | None = None

    def named(self, classes: NDArray) -> Cluster:
        """The same with the class that most of its members belong to."""
        if not len(classes):
            return self
        names, counts = np.unique(classes, return_counts=True)
        best = int(counts.argmax())
        return replace(self, most=str(names[best]), purity=float(counts[best] / counts.sum()))


class Illustrator:
    """Draws the cards after a survey.

    Parameters
    ----------
    data : Dataset
        The samples; their file may know the names of features.
    labels : ndarray of shape (n,)
        Their clusters; below zero for none.
    space : SampleSpace
        Where the clusters are, with the sums of all samples.
    survey : Survey
        What the pass over the samples found.
    colours : list of str
        One per cluster.
    """

    def __init__(
        self,
        data: Dataset,
        labels: NDArray,
        space: SampleSpace,
        survey: Survey,
        colours: list[str],
    ) -> None:
        self._source = source = data.samples.pictures
        self._labels = labels
        self._space = space
        self._survey = survey
        self._colours = colours
        self._painter: Painter | None = None
        if is_image(source.shape):
            self._painter = Painter(source.shape, min(0.0, survey.low), survey.high)
        else:
            self._names = source.feature_names
        self._spectra = space.spectra if isinstance(space, SubspaceSpace) else None

    @staticmethod
    def members(n_clusters: int) -> int:
        """How many members of each kind a card shows: fewer where there are many cards."""
        return _MEMBERS if n_clusters <= 20 else 6

    def clusters(self) -> list[Cluster]:
        """All clusters in order of their numbers."""
        sizes = np.bincount(self._labels[self._labels >= 0], minlength=len(self._colours))
        total, largest = max(1, int(sizes.sum())), max(1, int(sizes.max()))
        plain = [
            Cluster(i, self._colours[i], int(size), float(size / total), float(size / largest))
            for i, size in enumerate(sizes)
        ]
        return [self._card(c) if c.number < CARDS and c.size else c for c in plain]

    def _card(self, cluster: Cluster) -> Cluster:
        space, i = self._space, cluster.number
        if not isinstance(space, SubspaceSpace):  # nothing says which members matter
            points, samples = self._some(i)
            shown = self._survey.chosen[points[: self.members(len(self._colours))]]
            return replace(cluster, mean=self._mean(samples), examples=self._drawn(shown))
        dim, survey = int(space.dims[i]), self._survey
        linear = space.subspaces.offsets is None
        cluster = replace(
            cluster,
            dim=dim,
            outside=float(survey.outside[i]) if linear else None,
            typical=self._members(survey.typical, i, _outside if linear else _nothing),
            borderline=self._members(survey.borderline, i, _nearly),
            outliers=self._members(survey.outliers, i, _outside if linear else _nothing),
        )
        if len(space.dims) == 1:  # with no other cluster, nothing is on a border
            cluster = replace(cluster, borderline=())
        if isinstance(space, Drawable):
            middle = space.samples(i, torch.zeros(1, space.dim, dtype=torch.float64))
            directions = self._walked(space, i)
        else:
            points, middle = self._some(i)
            directions = self._seen(space, i, points, middle)
        cluster = replace(cluster, mean=self._mean(middle), directions=directions)
        if self._spectra is None or not self._spectra[i].any():
            return cluster
        values = self._spectra[i].astype(float)
        return replace(
            cluster,
            held=float(values[:dim].sum() / values.sum()),
            spectrum=charts.spectrum(values.tolist(), dim, cluster.colour),
        )

    def _members(
        self, kept: Extremes, cluster: int, tell: Callable[[float, int], tuple[str, str]]
    ) -> tuple[Member, ...]:
        indices, scores, others = kept.of(cluster)
        made = []
        for member, score, other in zip(self._drawn(indices), scores, others, strict=True):
            note, mark = tell(abs(score), int(other))
            made.append(replace(member, note=note, mark=mark))
        return tuple(made)

    def _drawn(self, indices: NDArray) -> tuple[Member, ...]:
        pictures = [""] * len(indices)
        if self._painter is not None and len(indices):
            pixels = self._painter.pixels(self._source.take(indices))
            pictures = [data_uri(picture) for picture in pixels]
        return tuple(
            Member(int(index), self._source.called(index), picture)
            for index, picture in zip(indices.tolist(), pictures, strict=True)
        )

    def _some(self, cluster: int) -> tuple[NDArray, NDArray]:
        """Members at random among those on the map: their points' numbers, and their samples."""
        points = np.flatnonzero(self._labels[self._survey.chosen] == cluster)
        most = max(1, min(_READ, _READ_NUMBERS // int(np.prod(self._source.shape))))
        points = np.random.default_rng(0).permutation(points)[:most]
        return points, self._source.take(self._survey.chosen[points])

    def _mean(self, samples: NDArray) -> str:
        if self._painter is None or not len(samples):
            return ""
        mean = samples.mean(axis=0, keepdims=True, dtype=np.float64)
        return data_uri(self._painter.pixels(mean)[0])

    def _walked(self, space: Drawable, cluster: int) -> tuple[Direction, ...]:
        """Directions as the samples that lie on them."""
        axes, spread = space.directions(cluster)
        made = []
        for j, share in _shares(spread):
            stops = torch.tensor(_STOPS, dtype=torch.float64)[:, None]
            samples = space.samples(cluster, stops * spread[j] * axes[:, j])
            change = samples[-1].astype(np.float64) - samples[0]
            made.append(self._direction(share, change, samples, _STOPS))
        return tuple(made)

    def _seen(
        self, space: SubspaceSpace, cluster: int, points: NDArray, samples: NDArray
    ) -> tuple[Direction, ...]:
        """Directions as members that lie far along them."""
        if len(points) < 2:
            return ()
        z = torch.from_numpy(self._survey.points[points]).double()
        places = space.coordinates(cluster, z).numpy()  # (m, p)
        made = []
        for j, share in _shares(space.directions(cluster)[1]):
            found = along(places[:, j], samples)
            shown = found.members
            made.append(self._direction(share, found.change, samples[shown], places[shown, j]))
        return tuple(made)

    def _direction(
        self, share: float, change: NDArray, samples: NDArray, places: Sequence[float] | NDArray
    ) -> Direction:
        if self._painter is None:
            return Direction(share, "", [], self._loadings(change.reshape(-1)))
        pictures = [data_uri(picture) for picture in self._painter.pixels(samples)]
        walk = [(p, _stop(place)) for p, place in zip(pictures, places, strict=True)]
        return Direction(share, data_uri(self._painter.change(change[None])[0]), walk, [])

    def _loadings(self, change: NDArray) -> list[tuple[str, float]]:
        loadings = change / max(float(np.linalg.norm(change)), 1e-300)
        strongest = np.argsort(-np.abs(loadings), kind="stable")[:_LOADINGS]
        return [(self._names[f], float(loadings[f])) for f in strongest]


def _shares(spread: Tensor) -> list[tuple[int, float]]:
    """The first directions that have any spread, with their shares of the variance."""
    variance = spread.square() / spread.square().sum().clamp(min=1e-300)
    return [(j, float(v)) for j, v in enumerate(variance[:_DIRECTIONS].tolist()) if v > 0]


def _stop(stop: float) -> str:
    return "mean" if stop == 0 else f"{stop:+.2g} sd".replace("-", "−")


def _outside(share: float, other: int) -> tuple[str, str]:
    told = f"{100 * share:.2g}%" if share < 0.1 else f"{share:.0%}"
    return f"{told} outside", told


def _nearly(gap: float, other: int) -> tuple[str, str]:
    return f"nearly in {other}", f"→ {other}"


def _nothing(score: float, other: int) -> tuple[str, str]:
    return "", ""
