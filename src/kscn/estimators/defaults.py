"""From parameters of `KSCN` that were left "auto" to values for the samples at hand.

A value that was given counts; else what the preset says; else what presets leave open. Where the
preset says "auto" too, as `tuned` does wherever the right value depends on the data, a rule below
derives it from the number and shape of the samples and the number of clusters, so that it fits to
whatever else was given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from kscn.estimators import presets
from kscn.nn import DenseAutoencoder, network

AUTO = "auto"

# What holds of every setting where a preset sets nothing.
OPEN: dict[str, Any] = {
    "subspace_dim": 7, "weight": 0.08, "trim": 0.1,
    "autoencoder": AUTO, "autoencoder_params": None, "augment": None,
    "latent": "identity", "latent_dim": 30,
    "loss": "residual", "temperature": 0.1, "balance": 0.0,
    "init": "k-subspaces", "init_dim": None, "n_init": 10,
    "pretrain_epochs": 50, "epochs": 50, "tol": 1e-3,
    "batch_size": 256, "learning_rate": 1e-3, "schedule": "constant",
}  # fmt: skip

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


def kscn_settings(
    shape: Sequence[int], n_samples: int, n_clusters: int, given: Mapping[str, Any]
) -> dict[str, Any]:
    """A value for every setting of a `KSCN` that can be "auto".

    Parameters
    ----------
    shape : sequence of int
        Shape of one sample.
    n_samples, n_clusters : int
    given : mapping
        Parameters of the `KSCN`, by name; what is missing counts as "auto". `preset` and `update`
        are looked at as well.
    """
    kind = given.get("autoencoder", AUTO)
    image = network.image_shape(tuple(shape))
    dense = kind == "sae" or isinstance(kind, DenseAutoencoder)
    if image is None or dense or (_is_auto(kind) and min(image[1:]) < DENSE_SIDE):
        image = None  # but a vector, which all samples are to a dense network
    shape = image or (math.prod(shape),)
    preset = given.get("preset", presets.DEFAULT)
    use = OPEN | presets.parameters(preset, given.get("update", "svd"), shape)
    use |= {name: given[name] for name in OPEN if not _is_auto(given.get(name, AUTO))}
    use = {name: value for name, value in use.items() if not _is_auto(value)}
    many = n_samples >= FEW
    use.setdefault("autoencoder", "cae" if image else "sae")
    use.setdefault("autoencoder_params", _network(use["autoencoder"], shape, many))
    # Two samples differ in one direction, and there is no subspace in that.
    use.setdefault("latent", "whitened" if n_samples > 2 else "identity")
    whitened = use["latent"] == "whitened"
    use.setdefault("loss", "separation" if whitened else "residual")
    use.setdefault("weight", _weight(use["loss"], shape))
    _dimensions(use, shape, n_samples, n_clusters)
    use.setdefault("batch_size", LARGE_BATCH if many else SMALL_BATCH)
    for stage, name in enumerate(("pretrain_epochs", "epochs")):
        # So many that a stage has about as many steps, whatever the number of samples.
        enough = math.ceil(STEPS[stage] / math.ceil(n_samples / use["batch_size"]))
        use.setdefault(name, max(LEAST[stage], min(enough, MOST[stage])))
    return use


def _network(kind: Any, shape: Sequence[int], many: bool) -> dict[str, Any] | None:
    """Layers until little is left of an image; widths that vectors of this length need."""
    if kind == "sae":
        hidden = WIDE if many else NARROW
        return {"hidden": list(hidden), "latent_dim": max(2, min(DENSE_CODE, math.prod(shape)))}
    if kind != "cae" or len(shape) == 1:
        return None  # a network of the user's own, or what will be refused
    short, long = sorted(shape[-2:])
    possible = max(1, int(math.log2(max(1, short))))
    if short < presets.SMALL:  # a third layer would leave too little
        depth = min(2, possible)
        return {"channels": [16] * depth, "kernels": [3] * depth, "batch_norm": True}
    depth = min(max(3, math.ceil(math.log2(long / CODE_SIDE))), possible)
    channels = [16, *[32] * (depth - 2), 8]
    return {"channels": channels, "kernels": [5, *[3] * (depth - 1)], "batch_norm": True}


def _weight(loss: str, shape: Sequence[int]) -> float:
    """Of the subspaces against reconstruction, whose error is a sum over pixels."""
    if loss != "separation":
        return RESIDUAL_WEIGHT
    if len(shape) == 1:
        return VECTOR_WEIGHT
    return float(f"{WEIGHT_PER_VALUE * math.prod(shape):.3g}")


def _dimensions(use: dict[str, Any], shape: tuple[int, ...], n: int, k: int) -> None:
    """Set those of the latent and of the subspaces in it, before training and after."""
    code_dim = network.code_dim(use["autoencoder"], use["autoencoder_params"], shape)
    given = [_largest(use.get(name)) for name in ("subspace_dim", "init_dim")]
    # Room for all subspaces, as far as the code and the samples have so many directions.
    room = max(LATENT_DIM, k * (given[0] or DIM))
    carried = max(2, n // SAMPLES_PER_DIM, *(dim + 1 for dim in given))
    use.setdefault("latent_dim", max(2, min(room, carried, code_dim)))
    # So that the cluster of a subspace holds more samples than that has dimensions.
    most = max(1, n // (SAMPLES_PER_DIM * k))
    if use["latent"] != "whitened":
        use.setdefault("subspace_dim", max(1, min(IDENTITY_DIM, code_dim - 1, most)))
        use.setdefault("init_dim", None)
        return
    d = min(use["latent_dim"], code_dim)
    use.setdefault("subspace_dim", max(1, min(DIM, d // k, d - 1, most)))
    # More than after training: clusters are wider before it.
    wider = min(INIT_DIM, int(INIT_DIM / LATENT_DIM * d), most)
    use.setdefault("init_dim", max(1, min(d - 1, max(wider, _largest(use["subspace_dim"])))))


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _largest(dims: Any) -> int:
    """The largest of the dimensions that were given; 0 where none was, or nothing sensible."""
    several = dims if isinstance(dims, Sequence) and not isinstance(dims, str) else [dims]
    return max((int(dim) for dim in several if isinstance(dim, Integral)), default=0)
