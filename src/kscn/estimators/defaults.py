"""From parameters of `KSCN` that were left "auto" to values for the samples at hand.

A value that was given counts; else what the preset says; else what presets leave open. Where the
preset says "auto" too, as `tuned` does wherever the right value depends on the data, a rule below
derives it from the number and shape of the samples and the number of clusters, so that it fits to
whatever else was given.
"""

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
DIM, INIT_DIM, LATENT_DIM = 3, 12, 30
# Members that a cluster of mean size should have for each dimension of its subspace.
SAMPLES_PER_DIM = 2
# Images with a shorter side are vectors: two layers would leave one pixel of them.
DENSE_SIDE = 4
# Samples below which there are few: narrow networks, small batches.
FEW = 20_000
# Steps of each stage, about those of 8 and 6 epochs of 70,000 images; and the epochs that they
# have at least and at most, however many samples there are, and however few.
STAGES = {"pretrain_epochs": (1200, 12, 60), "epochs": (700, 8, 40)}


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
    too_small = image is not None and kind == AUTO and min(image[1:]) < DENSE_SIDE
    if kind == "sae" or isinstance(kind, DenseAutoencoder) or too_small:
        image = None  # but a vector, which all samples are to a dense network
    shape = image or (math.prod(shape),)
    preset = given.get("preset", presets.DEFAULT)
    use = OPEN | presets.parameters(preset, given.get("update", "svd"), shape)
    use |= {name: given[name] for name in OPEN if not _is_auto(given.get(name, AUTO))}
    use = {name: value for name, value in use.items() if not _is_auto(value)}
    use.setdefault("autoencoder", "cae" if image else "sae")
    use.setdefault("autoencoder_params", _layers(use["autoencoder"], shape, n_samples))
    # Two samples differ in one direction, and there is no subspace in that.
    use.setdefault("latent", "whitened" if n_samples > 2 else "identity")
    use.setdefault("loss", "separation" if use["latent"] == "whitened" else "residual")
    use.setdefault("weight", _weight(use["loss"], shape))
    _dimensions(use, shape, n_samples, n_clusters)
    use.setdefault("batch_size", 256 if n_samples >= FEW else 64)
    per_epoch = math.ceil(n_samples / use["batch_size"])
    for name, (steps, least, most) in STAGES.items():
        use.setdefault(name, max(least, min(math.ceil(steps / per_epoch), most)))
    return use


def _layers(kind: Any, shape: Sequence[int], n_samples: int) -> dict[str, Any] | None:
    """Layers until little is left of an image; widths that vectors of this length need."""
    if kind == "sae":
        # 1,797 digits as vectors had 90 % with either, in a fraction of the time.
        hidden = [500, 500, 2000] if n_samples >= FEW else [128, 128, 256]
        return {"hidden": hidden, "latent_dim": max(2, min(40, math.prod(shape)))}
    if kind != "cae" or len(shape) == 1:
        return None  # a network of the user's own, or what will be refused
    short, long = sorted(shape[-2:])
    possible = max(1, int(math.log2(short)))
    if short < presets.SMALL:  # a third layer would leave too little
        depth = min(2, possible)
        return {"channels": [16] * depth, "kernels": [3] * depth, "batch_norm": True}
    # Until the longer side of the code is no more than 8.
    depth = min(max(3, math.ceil(math.log2(long / 8))), possible)
    channels = [16, *[32] * (depth - 2), 8]
    return {"channels": channels, "kernels": [5, *[3] * (depth - 1)], "batch_norm": True}


def _weight(loss: str, shape: Sequence[int]) -> float:
    """Of the subspaces against reconstruction, whose error is a sum over pixels.

    Of the separation loss, 50 at 28 x 28 and 4 at 8 x 8, and the same on vectors of any length; of
    any other the paper's.
    """
    if loss != "separation":
        return 0.08
    return 5.0 if len(shape) == 1 else float(f"{50 / 784 * math.prod(shape):.3g}")


def _dimensions(use: dict[str, Any], shape: tuple[int, ...], n: int, k: int) -> None:
    """Set those of the latent and of the subspaces in it, before training and after."""
    code = network.code_dim(use["autoencoder"], use["autoencoder_params"], shape)
    given = [_largest(use.get(name)) for name in ("subspace_dim", "init_dim")]
    # Room for all subspaces, as far as the code and the samples have so many directions.
    room = max(LATENT_DIM, k * (given[0] or DIM))
    carried = max(2, n // SAMPLES_PER_DIM, *(dim + 1 for dim in given))
    use.setdefault("latent_dim", max(2, min(room, carried, code)))
    # So that the cluster of a subspace holds more samples than that has dimensions.
    most = max(1, n // (SAMPLES_PER_DIM * k))
    if use["latent"] != "whitened":
        use.setdefault("subspace_dim", max(1, min(OPEN["subspace_dim"], code - 1, most)))
        use.setdefault("init_dim", None)
        return
    d = min(use["latent_dim"], code)
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
