"""One card per cluster: who its members are and, where it can be drawn, what its subspace means."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Dataset
from kscn.report.charts import Series, line
from kscn.report.pictures import Painter, data_uri, is_image
from kscn.report.spaces import SubspaceSpace
from kscn.report.survey import Extremes, Survey
from kscn.runtime.rows import sample_rows

# Cards in full; further clusters are in the table of sizes only.
CARDS = 60
MEMBERS = 8  # of each kind on a card
_DIRECTIONS = 5
_LOADINGS = 6
# Members by which a mean and directions are drawn, and numbers in all of them.
_READ, _READ_NUMBERS = 1000, 2**23
# Standard deviations from the mean at which a direction is shown.
_STOPS = {"−2 sd": -2.0, "−1 sd": -1.0, "mean": 0.0, "+1 sd": 1.0, "+2 sd": 2.0}


@dataclass(frozen=True)
class Member:
    """A sample that stands for something; the picture of a vector is empty."""

    index: int
    name: str
    picture: str
    distance: float  # to its own subspace; of a borderline member how much farther the next is
    other: int  # the cluster of the second nearest subspace


@dataclass(frozen=True)
class Direction:
    """A direction of a subspace, as pictures along it or as loadings of features."""

    share: float  # of the variance of the members within the subspace
    change: str = ""  # picture of what grows and shrinks
    walk: list[tuple[str, str]] = field(default_factory=list)  # pictures, and where they are
    loadings: list[tuple[str, float]] = field(default_factory=list)  # by name, from -1 to 1


@dataclass
class Cluster:
    """A cluster as its card shows it; what a run or a method does not have stays empty."""

    number: int
    colour: str
    size: int
    share: float  # of all samples that are in a cluster
    dim: int | None = None
    outside: float | None = None  # share of the members' energy
    mean: str = ""
    typical: list[Member] = field(default_factory=list)
    borderline: list[Member] = field(default_factory=list)
    outliers: list[Member] = field(default_factory=list)
    spectrum: str = ""
    directions: list[Direction] = field(default_factory=list)
    most: str | None = None  # the class of most members, and their share
    purity: float | None = None


class Illustrator:
    """Draws the cards after a survey.

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

    def clusters(self) -> list[Cluster]:
        """All clusters in order of their numbers."""
        sizes = np.bincount(self._labels[self._labels >= 0], minlength=len(self._colours))
        total = max(1, int(sizes.sum()))
        made = []
        for i, size in enumerate(sizes.tolist()):
            cluster = Cluster(i, self._colours[i], size, size / total)
            if size and i < CARDS:
                self._fill(cluster)
            made.append(cluster)
        return made

    def _fill(self, cluster: Cluster) -> None:
        space, survey, i = self._space, self._survey, cluster.number
        cluster.typical = self._members(survey.typical, i)
        cluster.outliers = self._members(survey.outliers, i)
        if len(space.dims) > 1:  # with no other cluster, nothing is on a border
            cluster.borderline = self._members(survey.borderline, i)
        samples = self._some(i)
        if space.decodes:
            cluster.dim = int(space.dims[i])
            if space.subspaces.offsets is None:
                cluster.outside = float(survey.outside[i])
            points = space.points(samples)
            cluster.spectrum = _spectrum(space.spectrum(points).tolist(), cluster.dim)
            cluster.directions, samples = self._directions(i, points, samples)
        if self._painter is not None:
            mean = samples.mean(axis=0, keepdims=True, dtype=np.float64)
            cluster.mean = self._pictures(mean)[0]

    def _members(self, kept: Extremes, cluster: int) -> list[Member]:
        indices, scores, others = kept.of(cluster)
        pictures = self._pictures(self._source.take(indices))
        made = zip(indices.tolist(), pictures, scores.tolist(), others.tolist(), strict=True)
        return [
            Member(index, self._source.called(index), picture, abs(score), int(other))
            for index, picture, score, other in made
        ]

    def _pictures(self, samples: NDArray) -> list[str]:
        if self._painter is None:
            return [""] * len(samples)
        return [data_uri(pixels) for pixels in self._painter.pixels(samples)]

    def _some(self, cluster: int) -> NDArray:
        """Some members of a cluster, at random."""
        members = np.flatnonzero(self._labels == cluster)
        most = max(1, min(_READ, _READ_NUMBERS // int(np.prod(self._source.shape))))
        return self._source.take(members[sample_rows(len(members), most, seed=0)])

    def _directions(
        self, cluster: int, points: Tensor, members: NDArray
    ) -> tuple[list[Direction], NDArray]:
        """The directions in which members spread, and the mean (1, *shape) that they meet in."""
        space = self._space
        axes, spread = space.directions(cluster, points)
        count = int((spread[:_DIRECTIONS] > 0).sum())
        shares = (spread / spread.square().sum().sqrt().clamp(min=1e-150)).square().tolist()
        stops = torch.tensor([*_STOPS.values()], dtype=torch.float64)
        steps = stops[:, None] * (axes * spread).mT[:count, None]  # (count, stops, d)
        moved = torch.cat([torch.zeros(1, space.dim, dtype=torch.float64), steps.flatten(0, 1)])
        samples = space.samples(moved, members)
        walks = samples[1:].reshape(count, len(stops), *space.shape)
        made = [self._direction(share, walk) for share, walk in zip(shares, walks, strict=False)]
        return made, samples[:1]

    def _direction(self, share: float, walk: NDArray) -> Direction:
        change = walk[-1].astype(np.float64) - walk[0]
        if self._painter is not None:
            pictures = zip(self._pictures(walk), _STOPS, strict=True)
            return Direction(share, data_uri(self._painter.change(change[None])[0]), [*pictures])
        loadings = change.reshape(-1) / max(float(np.linalg.norm(change)), 1e-300)
        strongest = np.argsort(-np.abs(loadings), kind="stable")[:_LOADINGS]
        names = self._source.feature_names
        return Direction(share, loadings=[(names[f], float(loadings[f])) for f in strongest])


def _spectrum(shares: list[float], dim: int) -> str:
    """The energy of members by direction; a dashed line is where their subspace ends."""
    shown = shares[: 2 * dim + 4]
    steps = tuple(f"direction {number}" for number in range(1, len(shown) + 1))
    end = dim if dim < len(shown) else None
    return line(Series("Energy of the members", "%", steps, tuple(shown), end))
