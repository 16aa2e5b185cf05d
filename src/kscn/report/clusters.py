"""One card per cluster: who its members are, what its subspace means, why it has its dimension."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Dataset
from kscn.report import charts
from kscn.report.pictures import Painter, data_uri, is_image
from kscn.report.spaces import SubspaceSpace
from kscn.report.survey import Extremes, Survey

# Cards in full; further clusters are in the table of sizes only.
CARDS = 60
_MEMBERS = 10
_DIRECTIONS = 5
_LOADINGS = 6
# Members that are read where a mean or a direction is drawn from them, and numbers in all of them.
_READ, _READ_NUMBERS = 400, 2**23
# Standard deviations from the mean at which a direction is shown.
_STOPS = (-2.0, -1.0, 0.0, 1.0, 2.0)
# Of members that show a direction: how many of either end beside one between them, and the share
# at either end whose means are compared.
_FARTHEST, _END = 2, 0.1


@dataclass
class Member:
    """A sample that stands for something, with what is to be said about it in words and in brief.

    The picture is empty for vectors.
    """

    index: int
    name: str
    picture: str
    note: str = ""
    mark: str = ""


@dataclass
class Direction:
    """A direction of a subspace, as pictures along it or as loadings of features.

    The walk has pictures from -2 to 2 standard deviations, or of members far one way and the other,
    each with its place in words.
    """

    share: float  # of the variance of the members within the subspace
    change: str = ""  # picture of what grows and shrinks
    walk: list[tuple[str, str]] = field(default_factory=list)
    loadings: list[tuple[str, float]] = field(default_factory=list)  # by name, from -1 to 1


@dataclass
class Cluster:
    """A cluster as its card shows it; what a run or a method does not have stays empty."""

    number: int
    colour: str
    size: int
    share: float  # of all samples
    bar: float  # length beside that of the largest cluster
    dim: int | None = None
    outside: float | None = None
    mean: str = ""
    typical: list[Member] = field(default_factory=list)
    borderline: list[Member] = field(default_factory=list)
    outliers: list[Member] = field(default_factory=list)
    directions: list[Direction] = field(default_factory=list)
    held: float | None = None
    spectrum: str | None = None
    most: str | None = None  # the class of most members, and their share
    purity: float | None = None


class Illustrator:
    """Draws the cards after a survey, which also left its sums in the space.

    `labels` are below zero for samples in no cluster, and there is a colour for every cluster.
    """

    def __init__(
        self,
        data: Dataset,
        labels: NDArray,
        space: SubspaceSpace,
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
        self._spectra = space.spectra

    @staticmethod
    def members(n_clusters: int) -> int:
        """How many members of each kind a card shows: fewer where there are many cards."""
        return _MEMBERS if n_clusters <= 20 else 6

    def clusters(self) -> list[Cluster]:
        """All clusters in order of their numbers."""
        sizes = np.bincount(self._labels[self._labels >= 0], minlength=len(self._colours))
        total, largest = max(1, int(sizes.sum())), max(1, int(sizes.max()))
        made = []
        for i, size in enumerate(sizes.tolist()):
            cluster = Cluster(i, self._colours[i], size, size / total, size / largest)
            if size and i < CARDS:
                self._fill(cluster)
            made.append(cluster)
        return made

    def _fill(self, cluster: Cluster) -> None:
        space, survey, i = self._space, self._survey, cluster.number
        cluster.dim = int(space.dims[i])
        linear = space.subspaces.offsets is None
        cluster.typical = self._members(survey.typical, i, linear)
        cluster.outliers = self._members(survey.outliers, i, linear)
        if linear:
            cluster.outside = float(survey.outside[i])
        if len(space.dims) > 1:  # with no other cluster, nothing is on a border
            cluster.borderline = self._drawn(survey.borderline.of(i)[0])
            others = survey.borderline.of(i)[2].astype(int)
            for member, other in zip(cluster.borderline, others, strict=True):
                member.note, member.mark = f"nearly in {other}", f"→ {other}"
        points, samples = self._some(i)
        if space.decodes:
            cluster.directions = self._walked(space, i, samples)
            samples = space.samples(i, torch.zeros(1, space.dim, dtype=torch.float64), samples)
        else:
            cluster.directions = self._seen(space, i, points, samples)
        cluster.mean = self._mean(samples)
        if self._spectra is not None and self._spectra[i].any():
            values = self._spectra[i].astype(float)
            cluster.held = float(values[: cluster.dim].sum() / values.sum())
            cluster.spectrum = charts.spectrum(values.tolist(), cluster.dim, cluster.colour)

    def _members(self, kept: Extremes, cluster: int, linear: bool) -> list[Member]:
        """Members by their distance, which is a share of their energy where that can be told."""
        indices, scores, _ = kept.of(cluster)
        members = self._drawn(indices)
        if linear:
            for member, share in zip(members, np.abs(scores), strict=True):
                member.mark = f"{100 * share:.2g}%" if share < 0.1 else f"{share:.0%}"
                member.note = f"{member.mark} outside"
        return members

    def _drawn(self, indices: NDArray) -> list[Member]:
        pictures = [""] * len(indices)
        if self._painter is not None and len(indices):
            pixels = self._painter.pixels(self._source.take(indices))
            pictures = [data_uri(picture) for picture in pixels]
        return [
            Member(index, self._source.called(index), picture)
            for index, picture in zip(indices.tolist(), pictures, strict=True)
        ]

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

    def _walked(self, space: SubspaceSpace, cluster: int, members: NDArray) -> list[Direction]:
        """Directions as the samples that lie on them."""
        axes, spread = space.directions(cluster)
        stops = torch.tensor(_STOPS, dtype=torch.float64)[:, None]
        made = []
        for j, share in _shares(spread):
            samples = space.samples(cluster, stops * spread[j] * axes[:, j], members)
            change = samples[-1].astype(np.float64) - samples[0]
            made.append(self._direction(share, change, samples, _STOPS))
        return made

    def _seen(
        self, space: SubspaceSpace, cluster: int, points: NDArray, samples: NDArray
    ) -> list[Direction]:
        """Directions as members that lie far along them."""
        if len(points) < 2:
            return []
        z = torch.from_numpy(self._survey.points[points]).double()
        places = space.coordinates(cluster, z).numpy()  # (m, p)
        made = []
        for j, share in _shares(space.directions(cluster)[1]):
            shown, change = along(places[:, j], samples)
            made.append(self._direction(share, change, samples[shown], places[shown, j]))
        return made

    def _direction(
        self, share: float, change: NDArray, samples: NDArray, places: Sequence[float] | NDArray
    ) -> Direction:
        if self._painter is None:
            loadings = change.reshape(-1) / max(float(np.linalg.norm(change)), 1e-300)
            strongest = np.argsort(-np.abs(loadings), kind="stable")[:_LOADINGS]
            named = [(self._names[f], float(loadings[f])) for f in strongest]
            return Direction(share, loadings=named)
        pictures = [data_uri(picture) for picture in self._painter.pixels(samples)]
        walk = [(p, _stop(place)) for p, place in zip(pictures, places, strict=True)]
        return Direction(share, data_uri(self._painter.change(change[None])[0]), walk)


def along(places: NDArray, samples: NDArray) -> tuple[NDArray, NDArray]:
    """Members that show what a direction means, and what changes along it.

    `places` (n,) is how far members are along the direction, 0 for their mean. Shown are those
    farthest one way, a middle one, and those farthest the other way: at most five rows, ascending.
    The change is the mean of the samples at the upper end less that at the lower end.
    """
    order = np.argsort(places, kind="stable")
    middle = order[[np.abs(places[order]).argmin()]]
    shown = np.unique(np.concatenate([order[:_FARTHEST], middle, order[-_FARTHEST:]]))
    end = max(1, int(_END * len(order)))
    low, high = (
        samples[rows].mean(axis=0, dtype=np.float64) for rows in (order[:end], order[-end:])
    )
    return shown[np.argsort(places[shown], kind="stable")], high - low


def _shares(spread: Tensor) -> list[tuple[int, float]]:
    """The first directions that have any spread, with their shares of the variance."""
    variance = spread.square() / spread.square().sum().clamp(min=1e-300)
    return [(j, float(v)) for j, v in enumerate(variance[:_DIRECTIONS].tolist()) if v > 0]


def _stop(stop: float) -> str:
    return "mean" if stop == 0 else f"{stop:+.2g} sd".replace("-", "−")
