"""The spaces in which clusters are looked for: several descriptions of the same samples.

No single one serves all data. Groups may lie around points (distances), near subspaces through the
origin (lines), near subspaces through the mean at unit norm (components), or differ only in
directions of little variance (whitened). Images have all of these twice, of their pixels and of
their scattering coefficients. All are computed from the principal components of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.features import FeatureChain, FeatureMap, PCAFeatures, ScaledFeatures, ScatteringFeatures

# Components at unit norm, and numbers of components that are whitened.
PLAIN = 150
WHITENED = (30, 60, 300)
# Whitening needs several samples per component, or it describes chance.
SAMPLES_PER_COMPONENT = 4
# Below this share of the mean square, the mean of all samples makes no difference.
SMALL_MEAN = 0.01
# Columns have different units if distances go by fewer than this many of them in effect, and their
# deviations differ by this factor, and they are correlated: principal components are not.
FEW_COLUMNS, APART, CORRELATED = 2.0, 10.0, 0.01


@dataclass(frozen=True)
class Space:
    """One description of the samples.

    Attributes
    ----------
    name : str
        Of what, and how: "pixels, 60 whitened".
    features : FeatureChain
        From samples to this description.
    wide : FeatureChain
        From samples to all components of the same kind at unit norm, in which subspaces may grow.
    z : Tensor, shape (m, d)
        Of the samples that candidates are made from.
    lines : bool
        Whether angles mean something in it, so that subspaces through the origin can be sought.
    judges : bool
        Whether candidates are measured in it.
    """

    name: str
    features: FeatureChain
    wide: FeatureChain
    z: Tensor
    lines: bool = True
    judges: bool = True


def image_spaces(
    images: NDArray, device: torch.device
) -> tuple[list[Space], dict[FeatureMap, NDArray]]:
    """Spaces of the pixels and of the scattering coefficients of images (m, [c,] h, w).

    Beside them what the first step of their features says of the images: that of the scattering
    takes as long as all the rest.
    """
    found, described = [], {}
    for name, first in (("scattering", ScatteringFeatures()), ("pixels", ScaledFeatures())):
        first.to(device).fit(images)
        described[first] = first.transform(images)
        found += _spaces(name, first, described[first], device)
    return found, described


def vector_spaces(
    vectors: NDArray, device: torch.device
) -> tuple[list[Space], dict[FeatureMap, NDArray]]:
    """Spaces of vectors (m, d): of their components, of the distances, of lines to the origin.

    Columns of a table that have different units are divided by their deviations first.
    """
    name, scaled = "vectors", ScaledFeatures().to(device).fit(vectors)
    at_scale = scaled.transform(vectors)
    if different_units(at_scale):
        spread = torch.from_numpy(at_scale.std(axis=0, dtype="f8"))
        name, scaling = "standardised columns", scaled.scaling_.per_column(spread)
        scaled = ScaledFeatures.of_fitted(scaling, scaled.sample_shape_).to(device)
        at_scale = scaled.transform(vectors)
    found = _spaces(name, scaled, at_scale, device)
    widest = min(PLAIN, *_room(at_scale))
    points = PCAFeatures(widest, unit_norm=False, constant=1.0).to(device).fit(at_scale)
    found.append(_space(f"{name}, distances", scaled, points, points, at_scale, lines=False))
    # The same factor, but no shift: subspaces through the origin stay subspaces.
    origin = ScaledFeatures.of_fitted(scaled.scaling_.without_shift(), scaled.sample_shape_)
    about = origin.to(device).transform(vectors)
    if float((about.mean(axis=0) ** 2).sum()) > SMALL_MEAN * float((about**2).sum(axis=1).mean()):
        lines = PCAFeatures(widest, centre=False).to(device).fit(about)
        found.append(_space(f"{name}, lines", origin, lines, lines, about))
    return found, {}  # a first step that only scales is soon done again


def different_units(vectors: NDArray) -> bool:
    """Whether the columns of vectors (m, d) are numbers that cannot be compared as they are.

    Such as a mass in grams beside lengths in millimetres: distances are then those of the masses,
    and so is every cluster. The effective number of columns is that of equal variances which would
    have the same sum and sum of squares.
    """
    varying = vectors[:, vectors.std(axis=0) > 0].astype("f8")
    variance = varying.var(axis=0)
    if len(variance) <= FEW_COLUMNS or variance.max() < APART**2 * variance.min():
        return False
    if variance.sum() ** 2 >= FEW_COLUMNS * (variance**2).sum():
        return False
    squared = np.corrcoef(varying, rowvar=False) ** 2
    chance = 1 / len(varying)  # of the square of a correlation
    return float(squared[~np.eye(len(squared), dtype=bool)].mean()) > CORRELATED + chance


def _spaces(name: str, first: FeatureMap, described: NDArray, device: torch.device) -> list[Space]:
    """Components at unit norm, and fewer or more of them whitened."""
    widest = min(max(PLAIN, *WHITENED), *_room(described))
    every = PCAFeatures(widest, unit_norm=False).to(device).fit(described)
    known = torch.from_numpy(every.transform(described)).float()
    wide = reduced(every, n_components=widest)

    def space(what: str, judges: bool, **params: Any) -> Space:
        last = reduced(every, **params)
        chain = FeatureChain.of_fitted([first, last])
        whole = FeatureChain.of_fitted([first, wide])
        z = last.of_components(known).to(device)
        return Space(f"{name}, {what}", chain, whole, z, judges=judges)

    found = [space("components", True, n_components=min(PLAIN, widest))]
    room = max(2, len(described) // SAMPLES_PER_COMPONENT)
    counts = list(dict.fromkeys(min(count, widest, room) for count in WHITENED))
    for count in counts:
        # The smallest says much the same as the next.
        judges = count == counts[-1] or count != WHITENED[0]
        found.append(space(f"{count} whitened", judges, n_components=count, whiten=True))
    return found


def _space(
    name: str,
    first: FeatureMap,
    last: PCAFeatures,
    wide: PCAFeatures,
    described: NDArray,
    lines: bool = True,
) -> Space:
    chain, whole = (FeatureChain.of_fitted([first, step]) for step in (last, wide))
    z = torch.from_numpy(last.transform(described)).float().to(last.device)
    return Space(name, chain, whole, z, lines)


def _room(described: NDArray) -> tuple[int, int]:
    """Most components that so many samples of so many numbers have."""
    return max(1, len(described) - 1), described.shape[1]


def reduced(pca: PCAFeatures, **params: Any) -> PCAFeatures:
    """The first components of a fitted map at unit norm, without fitting again."""
    config, arrays = pca.state()
    settings = config["params"] | {"unit_norm": True} | params
    count = settings["n_components"]
    kept = {name: arrays[name][:count] for name in ("components", "explained_variance")}
    return PCAFeatures.from_state(config | {"params": settings}, arrays | kept).to(pca.device)
