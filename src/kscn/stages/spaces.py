"""The spaces in which clusters are looked for: several descriptions of the same samples.

No single one serves all data. Groups may lie around points (distances), near subspaces through the
origin (lines), near subspaces through the mean at unit norm (components), or differ only in
directions of little variance (whitened). Images have all of these twice, of their pixels and of
their scattering coefficients. All are computed from the principal components of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """Spaces of vectors (m, d): of their components, of the distances, of lines to the origin."""
    scaled = ScaledFeatures().to(device).fit(vectors)
    at_scale = scaled.transform(vectors)
    found = _spaces("vectors", scaled, at_scale, device)
    widest = min(PLAIN, *_room(at_scale))
    points = PCAFeatures(widest, unit_norm=False, constant=1.0).to(device).fit(at_scale)
    found.append(_space("vectors, distances", scaled, points, points, at_scale, lines=False))
    # The same factor, but no shift: subspaces through the origin stay subspaces.
    origin = ScaledFeatures.of_fitted(scaled.scaling_.without_shift(), scaled.sample_shape_)
    about = origin.to(device).transform(vectors)
    if float((about.mean(axis=0) ** 2).sum()) > SMALL_MEAN * float((about**2).sum(axis=1).mean()):
        lines = PCAFeatures(widest, centre=False).to(device).fit(about)
        found.append(_space("vectors, lines", origin, lines, lines, about))
    return found, {}  # a first step that only scales is soon done again


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
