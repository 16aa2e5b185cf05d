"""Feature maps: samples at one scale, scattering maps of images, votes of a sample's neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import Tags
from torch import Tensor, nn

from kscn.constraints import Alternative, Integer
from kscn.errors import InputError
from kscn.features.base import FeatureMap
from kscn.features.pca import MOST_FEATURES, ROWS
from kscn.features.scattering import Scattering2D, maps_of
from kscn.modelparts import check_array
from kscn.nn.scaling import InputScaling

# Maps weaker than this share of an image's strongest are mostly rounding; they stay weak.
_FAINT = 1e-5
# Squared distances below this share of the farthest asked count as none: a member of the sample
# outweighs all others on the question of itself.
_NO_DISTANCE = 1e-4
_MOST_CLUSTERS = 2**16  # in a file that is read
# The longer side that images of any size are scattered at: what an image shows as a whole survives,
# and it takes a sixteenth of the time at twice of it (177 images a second of one core at 64, 11 at
# 112).
LARGEST_SIDE = 64


class ScaledFeatures(FeatureMap):
    """Samples less their mean, divided by their root mean square deviation, in float32.

    That is one number for all features, so directions keep their relative sizes, and squares are
    far from the ends of float32.

    Parameters
    ----------
    largest_side : int, optional
        Images with a longer side are made smaller, by the mean over square blocks of pixels.

    Attributes
    ----------
    scaling_ : InputScaling
    module_ : torch.nn.Module
        From samples (n, d) to features.
    """

    _parameter_constraints: ClassVar[Mapping[str, Sequence[Alternative]]] = {
        "largest_side": (Integer(8), None)
    }

    def __init__(self, largest_side: int | None = None) -> None:
        self.largest_side = largest_side

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find mean and deviation of the samples X, which are read once."""
        return self._prepare(InputScaling.of(self._open(X, reset=True), image=False))

    @classmethod
    def of_fitted(cls, scaling: InputScaling, shape: tuple[int, ...]) -> Self:
        """The map of a scaling that was found already, for samples of a shape."""
        features = cls()
        features.sample_shape_ = shape
        return features._prepare(scaling)

    def _prepare(self, scaling: InputScaling) -> Self:
        self.scaling_ = scaling.to(self.device)
        shape, block = self.sample_shape_, 1
        if self.largest_side is not None and len(shape) > 1:
            block = _block_side(shape, self.largest_side)
        self._n_features_out = self.n_features_in_
        self.module_: nn.Module = self.scaling_
        if block > 1:
            images = (math.prod(shape[:-2]), *shape[-2:])
            means = nn.AvgPool2d(block, ceil_mode=True, count_include_pad=False)
            self.module_ = nn.Sequential(
                self.scaling_, nn.Unflatten(1, images), means, nn.Flatten()
            )
            self._n_features_out = math.prod((*shape[:-2], *_reduced(shape, block)))
        return self

    def _input_dtype(self, stored: np.dtype) -> np.dtype:
        # Integers too are scaled in float64, whatever their size.
        return np.dtype("f4" if stored.kind == "f" and stored.itemsize <= 4 else "f8")

    def _apply(self, samples: Tensor) -> Tensor:
        return self.module_(samples.reshape(len(samples), -1))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _arrays(self) -> dict[str, NDArray]:
        return {name: tensor.cpu().numpy() for name, tensor in self.scaling_.state_dict().items()}

    def _restore(self, arrays: Mapping[str, NDArray]) -> Self:
        return self._prepare(InputScaling.of_file(arrays, self.n_features_in_))


class ScatteringFeatures(FeatureMap):
    """Two-order scattering maps of images, each map divided by its own maximum.

    Images are surrounded by zeros up to the next size that 2**J divides, 28 x 28 to 32 x 32, and
    scattered with reflection beyond that. The features of an image depend on that image alone.

    Parameters
    ----------
    J : int or "auto"
        Number of scales. By default such that maps have about 4 x 4 pixels: 3 for images of
        28 x 28 or 32 x 32; but 2 for smaller ones, so that there is a second order, and more
        where there would be more features than `PCAFeatures` takes: 5 for colours of 64 x 64.
    L : int
        Number of angles.
    largest_side : int, optional
        Images with a longer side are first made smaller, by the mean over square blocks of pixels:
        the time per image grows much faster than its area.

    Attributes
    ----------
    J_ : int
        The number of scales in use.
    scattering_ : Scattering2D
        The transform in use.
    """

    _parameter_constraints: ClassVar[Mapping[str, Sequence[Alternative]]] = {
        "J": ("auto", Integer(1)),
        "L": (Integer(1),),
        "largest_side": (Integer(8), None),
    }

    def __init__(self, J: int | str = "auto", L: int = 8, largest_side: int | None = None) -> None:
        self.J = J
        self.L = L
        self.largest_side = largest_side

    def fit(self, X: Any, y: Any = None) -> Self:
        """Prepare the filters for images X, (n, h, w) or (n, channels, h, w)."""
        self._open(X, reset=True)
        return self._restore({})

    def _restore(self, arrays: Mapping[str, NDArray]) -> Self:
        shape = self.sample_shape_
        if len(shape) not in (2, 3):
            raise InputError(
                f"X has samples of shape {shape}; scattering needs images, so give an array of "
                "shape (n, height, width) or (n, channels, height, width)."
            )
        self._block = _block_side(shape, self.largest_side or max(shape[-2:]))
        self._reduced = _reduced(shape, self._block)
        if isinstance(self.J, str):
            side = min(self._reduced)
            self._fit_size(max(2 if side >= 8 else 1, round(math.log2(side / 4))))
            # Fewer and larger pixels of the maps, where components of all would take too much
            # memory.
            while self._n_features_out > MOST_FEATURES and side >= 2 ** (self.J_ + 1):
                self._fit_size(self.J_ + 1)
        else:
            self._fit_size(int(self.J))
        self._scattering: Scattering2D | None = None
        return self

    def _fit_size(self, J: int) -> None:
        """What images are filled up to for a number of scales, and how many features come out."""
        channels, (height, width) = self.sample_shape_[:-2], self._reduced
        unit = 2 ** min(J, 62)
        # What is smaller than that is refused by `maps_of`.
        high, wide = (size + (-size % unit if size >= unit else 0) for size in (height, width))
        n_maps, map_shape = maps_of((high, wide), J, self.L)
        self.J_, self._padded = J, (high, wide)
        self._n_features_out = math.prod((*channels, n_maps, *map_shape))

    @property
    def scattering_(self) -> Scattering2D:
        """The transform in use, made when it is first needed: its filters take time and memory."""
        if self._scattering is None:
            made = Scattering2D(self._padded, self.J_, self.L)
            self._scattering = made.to(self.device)
        return self._scattering

    def _apply(self, samples: Tensor) -> Tensor:
        y, x = np.subtract(self._padded, self._reduced).tolist()
        images = _at_unit_scale(samples)
        if self._block > 1:
            images = nn.functional.avg_pool2d(
                images, self._block, ceil_mode=True, count_include_pad=False
            )
        images = nn.functional.pad(images, (x // 2, x - x // 2, y // 2, y - y // 2))
        maps = self.scattering_(images).flatten(-2)
        return _by_maximum(maps).reshape(len(samples), -1)  # whatever the scale of an image


def _block_side(shape: tuple[int, ...], largest_side: int) -> int:
    """The side of square blocks whose means make an image no longer than `largest_side`."""
    longest = max(shape[-2:])
    return math.ceil(longest / min(longest, largest_side))


def _reduced(shape: tuple[int, ...], block: int) -> tuple[int, ...]:
    """Height and width of the means; blocks at the edge that are not full have one as well."""
    return tuple(math.ceil(side / block) for side in shape[-2:])


def _at_unit_scale(samples: Tensor) -> Tensor:
    """Images in float32, each divided by a power of two, so that squares stay in range.

    The largest value of an image is then between 1/2 and 1, and no digit is lost.
    """
    exponents = torch.frexp(samples.flatten(1).abs().amax(dim=1)).exponent
    factors = torch.exp2(-exponents.double()).view(-1, *[1] * (samples.ndim - 1))
    return (samples.double() * factors).float()


def _by_maximum(maps: Tensor) -> Tensor:
    """Maps (n, ..., pixels), each divided by its largest absolute value; zeros stay zeros."""
    strongest = maps.abs().amax(dim=-1, keepdim=True)
    faint = _FAINT * strongest.flatten(1).amax(dim=1)
    faint = faint.clamp_min(torch.finfo(maps.dtype).tiny).view(-1, *[1] * (maps.ndim - 1))
    return maps / torch.maximum(strongest, faint)


class Votes(nn.Module):
    """Roots of the shares of votes (n, k) for vectors (n, d).

    Clusters of a neighbour graph have shapes that no subspace of the input has. What share of a
    vector's nearest belongs to each cluster describes it instead: the root of the shares has unit
    length, and every cluster is one coordinate axis. The `count` nearest among samples (m, d) vote
    for their labels (m,), and a vote weighs the more, the nearer it comes from.
    """

    samples: Tensor
    half_norms: Tensor
    votes: Tensor

    def __init__(self, samples: Tensor, labels: Tensor, n_clusters: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.register_buffer("samples", samples.float())
        self.register_buffer("half_norms", samples.float().square().sum(dim=1) / 2)
        self.register_buffer("votes", nn.functional.one_hot(labels, n_clusters).float())

    def forward(self, z: Tensor) -> Tensor:
        """Roots of shares (n, k)."""
        z = z.float()
        index = (z @ self.samples.T - self.half_norms).topk(self.count, dim=1).indices
        # Anew by differences: that of products has too few digits for what is near.
        apart = (z[:, None] - self.samples[index]).square().sum(dim=2)
        farthest = apart.max(dim=1, keepdim=True).values
        least = _NO_DISTANCE * farthest + torch.finfo(z.dtype).tiny
        weight = least / (apart + least)
        votes = (self.votes[index] * weight[:, :, None]).sum(dim=1)
        return (votes / votes.sum(dim=1, keepdim=True)).sqrt()


class VotedFeatures(FeatureMap):
    """Shares of the votes of a vector's nearest in a sample, each cluster on its axis.

    It is made by `of_sample`, which is given the clusters; there is no `fit`.

    Parameters
    ----------
    n_clusters : int
    count : int
        How many vote.

    Attributes
    ----------
    votes_ : Votes
    """

    _parameter_constraints: ClassVar[Mapping[str, Sequence[Alternative]]] = {
        "n_clusters": (Integer(1),),
        "count": (Integer(1),),
    }

    def __init__(self, n_clusters: int = 1, count: int = 1) -> None:
        self.n_clusters = n_clusters
        self.count = count

    @classmethod
    def of_sample(cls, samples: Tensor, labels: Tensor, n_clusters: int, count: int) -> Self:
        """The map by the `count` nearest among samples (m, d) of known clusters (m,)."""
        features = cls(n_clusters, min(count, len(samples)))
        features.sample_shape_ = (samples.shape[1],)
        return features._prepare(samples, labels)

    def _prepare(self, samples: Tensor, labels: Tensor) -> Self:
        self.votes_ = Votes(samples, labels, self.n_clusters, self.count)
        self._n_features_out = self.n_clusters
        return self.to(samples.device)

    def _input_dtype(self, stored: np.dtype) -> np.dtype:
        return np.dtype(np.float32)

    def _apply(self, samples: Tensor) -> Tensor:
        z = samples.reshape(len(samples), -1).float()
        whole = nn.functional.pad(z, (0, 0, 0, -len(z) % ROWS))
        return torch.cat([self.votes_(block) for block in whole.split(ROWS)])[: len(z)]

    def _arrays(self) -> dict[str, NDArray]:
        labels = self.votes_.votes.argmax(dim=1).to(torch.int32)
        return {"samples": self.votes_.samples.cpu().numpy(), "labels": labels.cpu().numpy()}

    def _restore(self, arrays: Mapping[str, NDArray]) -> Self:
        samples, labels = (np.array(arrays[name]) for name in ("samples", "labels"))
        check_array("samples", samples, (None, self.n_features_in_), ("float32",))
        check_array("labels", labels, samples.shape[:1], ("int32",))
        # One number per sample and cluster is made of this: no more clusters than samples.
        if max(self.count, self.n_clusters) > len(samples) or self.n_clusters > _MOST_CLUSTERS:
            raise ValueError(f"{self.n_clusters} clusters and {self.count} votes are too many")
        if labels.min() < 0 or labels.max() >= self.n_clusters:
            raise ValueError(f"labels must be from 0 to {self.n_clusters - 1}")
        return self._prepare(torch.from_numpy(samples), torch.from_numpy(labels).long())
