"""From parameters of `KSCN` that were left "auto" to values for the samples at hand.

A value that was given counts; else what the preset says; else what presets leave open. Where the
preset says "auto" too, as `tuned` does wherever the right value depends on the data, a rule below
derives it from the number and shape of the samples and the number of clusters, so that it fits to
whatever else was given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any

from kscn.constraints import POSITIVE, Alternative, Integer, Number, array_of, check_value
from kscn.estimators import presets
from kscn.nn import DenseAutoencoder, network
from kscn.training.losses import LOSSES

AUTO = "auto"

_STARTS = ["k-subspaces", "drawn", "neighbours", "scattering", "k-means"]
# Every setting: what holds where a preset sets nothing, and what it may be, besides "auto". Those
# that have no alternatives here are looked at with the samples.
_SETTINGS: dict[str, tuple[Any, Sequence[Alternative]]] = {
    "subspace_dim": (7, []),
    "weight": (0.08, [Number(0)]),
    "trim": (0.1, [Number(0, 0.5)]),
    "autoencoder": (AUTO, []),
    "autoencoder_params": (None, []),
    "latent": ("identity", ["identity", "whitened"]),
    "latent_dim": (30, [Integer(2)]),
    "loss": ("residual", []),  # one of LOSSES, to which some may have been added
    "temperature": (0.1, [POSITIVE]),
    "balance": (0.0, [Number(0)]),
    "augment": (None, []),
    "init": ("k-subspaces", [*_STARTS, array_of("labels or a function")]),
    "init_dim": (None, []),
    "n_init": (10, [Integer(1)]),
    "pretrain_epochs": (50, [Integer(0)]),
    "epochs": (50, [Integer(0)]),
    "tol": (1e-3, [Number(0)]),
    "batch_size": (256, [Integer(1)]),
    "learning_rate": (1e-3, [POSITIVE]),
    "schedule": ("constant", ["constant", "one-cycle"]),
}
OPEN = {name: default for name, (default, _) in _SETTINGS.items()}


# Of subspaces, of those that the start is searched with, and of the whitened latent, where
# there are ten clusters and enough samples: 10 * 3 = 30.
DIM = 3
INIT_DIM = 12
LATENT_DIM = 30
# Of subspaces in the code itself: the paper's.
IDENTITY_DIM = 7
# Members that a cluster of mean size should have for each dimension of its subspace.
SAMPLES_PER_DIM = 2
# Layers are added until the longer side of the code is no more than this.
CODE_SIDE = 8
# Images with a shorter side are vectors: two layers would leave one pixel of them.
DENSE_SIDE = 4
# Widths of the dense network's code and hidden layers, for many samples and for few: 1,797
# digits as vectors had 90 % with either, in a fraction of the time.
DENSE_CODE = 40
WIDE = (500, 500, 2000)
NARROW = (128, 128, 256)
# Of the separation loss, for each number of an image, of which reconstruction is a sum: 50 at
# 28 x 28, 4 at 8 x 8; the same on vectors, whatever their length; of any other: the paper's.
WEIGHT_PER_VALUE = 50 / 784
VECTOR_WEIGHT = 5.0
RESIDUAL_WEIGHT = 0.08
# Samples below which there are few: narrow networks, small batches.
FEW = 20_000
# Samples per step, and the same where there are too few of them for enough steps.
LARGE_BATCH = 256
SMALL_BATCH = 64
# Steps of each stage, about those of 8 and 6 epochs of 70,000 images; and the epochs that they
# have at least and at most, however many samples there are, and however few.
STEPS = (1200, 700)
LEAST = (12, 8)
MOST = (60, 40)


def settings(
    given: Mapping[str, Any], shape: Sequence[int], n_samples: int | None = None
) -> dict[str, Any]:
    """A value for every parameter that a preset can set.

    Parameters
    ----------
    given : mapping
        Parameters of a `KSCN`, by name; what is missing counts as "auto". `n_clusters`, `preset`
        and `update` are looked at as well.
    shape : sequence of int
        Shape of one sample.
    n_samples : int, optional
        How many there are; many, if it is not said.

    Returns
    -------
    dict
        The names of `OPEN`, none of which is "auto".
    """
    kind = given.get("autoencoder", AUTO)
    if kind == "sae" or isinstance(kind, DenseAutoencoder) or (kind == AUTO and _too_small(shape)):
        shape = (math.prod(shape),)  # images are vectors to a dense network
    preset = given.get("preset", presets.DEFAULT)
    found = OPEN | presets.parameters(preset, given.get("update", "svd"), shape)
    found |= {name: given[name] for name in OPEN if not _open(given.get(name, AUTO))}
    check_settings(found)
    return _Derivation(found, tuple(shape), n_samples, given["n_clusters"]).run()


def check_settings(found: Mapping[str, Any]) -> None:
    """Refuse impossible settings, given or from a preset; "auto" is passed."""
    for name, value in found.items():
        allowed = list(LOSSES) if name == "loss" else _SETTINGS[name][1]
        if allowed and not _open(value):
            check_value(name, value, allowed)


class _Derivation:
    """The rules, each of which may look at what the ones before it have found."""

    def __init__(
        self, found: dict[str, Any], shape: tuple[int, ...], n_samples: int | None, n_clusters: int
    ) -> None:
        self.found, self.shape, self.k = found, shape, n_clusters
        self.n = 2**31 if n_samples is None else n_samples
        self.many = self.n >= FEW
        # Of each subspace, so that its cluster holds more samples than it has dimensions.
        self.most_dim = max(1, self.n // (SAMPLES_PER_DIM * n_clusters))

    def run(self) -> dict[str, Any]:
        found = self.found
        rules = {
            "autoencoder": lambda: "cae" if presets.is_image(self.shape) else "sae",
            "autoencoder_params": self.network,
            # Two samples differ in one direction, and there is no subspace in that.
            "latent": lambda: "whitened" if self.n > 2 else "identity",
            "loss": lambda: "separation" if found["latent"] == "whitened" else "residual",
            "weight": self.weight,
            "latent_dim": self.latent_dim,
            "subspace_dim": self.subspace_dim,
            "init_dim": self.init_dim,
            "batch_size": lambda: LARGE_BATCH if self.many else SMALL_BATCH,
            "pretrain_epochs": lambda: self.epochs(0),
            "epochs": lambda: self.epochs(1),
        }
        for name, rule in rules.items():
            if _open(found[name]):
                found[name] = rule()
        return {name: OPEN[name] if _open(value) else value for name, value in found.items()}

    def network(self) -> dict[str, Any] | None:
        """Layers until little is left of an image; widths that vectors of this length need."""
        if self.found["autoencoder"] == "sae":
            d = math.prod(self.shape)
            hidden = WIDE if self.many else NARROW
            return {"hidden": list(hidden), "latent_dim": max(2, min(DENSE_CODE, d))}
        if self.found["autoencoder"] != "cae" or not presets.is_image(self.shape):
            return None  # a network of the user's own, or what will be refused
        short, long = sorted(self.shape[-2:])
        possible = max(1, int(math.log2(max(1, short))))
        wanted = max(3, math.ceil(math.log2(long / CODE_SIDE)))
        if short < presets.SMALL:  # a third layer would leave too little
            depth = min(2, possible)
            return {"channels": [16] * depth, "kernels": [3] * depth, "batch_norm": True}
        depth = min(wanted, possible)
        channels = [16, *[32] * (depth - 2), 8]
        return {"channels": channels, "kernels": [5, *[3] * (depth - 1)], "batch_norm": True}

    def weight(self) -> float:
        """Of the subspaces against reconstruction, whose error is a sum over pixels."""
        if self.found["loss"] != "separation":
            return RESIDUAL_WEIGHT
        if not presets.is_image(self.shape):
            return VECTOR_WEIGHT
        return float(f"{WEIGHT_PER_VALUE * math.prod(self.shape):.3g}")

    def latent_dim(self) -> int:
        """Room for all subspaces, as far as the code and the samples have so many directions."""
        given = [_largest(self.found[name]) for name in ("subspace_dim", "init_dim")]
        room = max(LATENT_DIM, self.k * (given[0] or DIM))
        carried = max(2, self.n // SAMPLES_PER_DIM, *(dim + 1 for dim in given))
        return max(2, min(room, carried, self.code_dim))

    def subspace_dim(self) -> int:
        """As many dimensions as leave room for all clusters."""
        if self.found["latent"] != "whitened":
            return max(1, min(IDENTITY_DIM, self.code_dim - 1, self.most_dim))
        d = min(self.found["latent_dim"], self.code_dim)
        return max(1, min(DIM, d // self.k, d - 1, self.most_dim))

    def init_dim(self) -> int | None:
        """More than after training: clusters are wider before it."""
        if self.found["latent"] != "whitened":
            return None
        d = min(self.found["latent_dim"], self.code_dim)
        share = INIT_DIM / LATENT_DIM
        wider = min(INIT_DIM, int(share * d), self.most_dim)
        return max(1, min(d - 1, max(wider, _largest(self.found["subspace_dim"]))))

    def epochs(self, stage: int) -> int:
        """So many that a stage has about as many steps, whatever the number of samples."""
        per_epoch = math.ceil(self.n / self.found["batch_size"])
        enough = math.ceil(STEPS[stage] / per_epoch)
        return max(LEAST[stage], min(enough, MOST[stage]))

    @cached_property
    def code_dim(self) -> int:
        """Length of the network's code, once the network is decided."""
        found = self.found
        return network.code_dim(found["autoencoder"], found["autoencoder_params"], self.shape)


def _open(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _largest(dims: Any) -> int:
    """The largest of the dimensions that were given; 0 where none was, or nothing sensible."""
    several = dims if isinstance(dims, Sequence) and not isinstance(dims, str) else [dims]
    return max((int(dim) for dim in several if isinstance(dim, Integral)), default=0)


def _too_small(shape: Sequence[int]) -> bool:
    return presets.is_image(shape) and min(shape[-2:]) < DENSE_SIDE
