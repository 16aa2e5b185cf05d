"""Settings of `KSCN` for the paper's data sets by name: what they have besides a preset's own.

The preset `paper` has what the paper states for each set. Those of `tuned` were chosen by what
works, while looking at scores on these two sets (docs/the-paper/published.md).
"""

from typing import Any

from kscn_paper.rivals.self_expression import dsc_start

_CAE = {"autoencoder": "cae", "autoencoder_params": {"channels": [20, 10, 5], "kernels": [5, 3, 3]}}
PAPER: dict[str, dict[str, Any]] = {
    "mnist": _CAE | {"subspace_dim": 7, "weight": 0.08},
    "fashion-mnist": _CAE | {"subspace_dim": 11, "weight": 0.11},
    # Not in the paper. Its three layers would leave 5 numbers of an image of 8 x 8: two leave 40.
    "digits": {
        "autoencoder": "cae",
        "autoencoder_params": {"channels": [20, 10], "kernels": [5, 3]},
        "subspace_dim": 4,
        "weight": 0.08,
    },
}

_WIDE = {
    "init": "scattering",
    "autoencoder": "cae",
    "autoencoder_params": {"channels": [16, 32, 8], "kernels": [5, 3, 3], "batch_norm": True},
}
_MNIST = _WIDE | {"augment": "affine"}
_FASHION = _WIDE | {
    "latent_dim": 60,
    "subspace_dim": 6,
    "balance": 1.0,
    "augment": {
        "kind": "affine", "angle": 8.0, "shear": 0.1, "scale": 0.1, "shift": 0.05, "flip": True,
    },
}  # fmt: skip
_WHOLE = {"pretrain_epochs": 2, "epochs": 5}
# Ten thousand images need more passes for the same number of steps.
_TEST = {"batch_size": 256, "pretrain_epochs": 5, "epochs": 15}
TUNED: dict[str, dict[str, Any]] = {
    "mnist": _MNIST | _WHOLE,
    "mnist-test": _MNIST | _TEST,
    "fashion-mnist": _FASHION | _WHOLE,
    "fashion-mnist-test": _FASHION | _TEST,
    # 1,797 images of 8 x 8 pixels: two layers, small batches.
    "digits": {
        "init": "drawn",
        "autoencoder": "cae",
        "autoencoder_params": {"channels": [16, 16], "kernels": [3, 3], "batch_norm": True},
        "init_dim": 10,
        # Reconstruction is a sum over pixels, and 64 are a twelfth of the 784 with a weight of 50.
        "weight": 5.0,
        "augment": {"kind": "affine", "angle": 10.0, "shear": 0.2, "scale": 0.1, "shift": 0.06},
        "learning_rate": 5e-3,
        "batch_size": 64,
        "pretrain_epochs": 40,
        "epochs": 15,
    },
}


def of(preset: str, dataset: str) -> dict[str, Any]:
    """The settings of a data set, or of the one that it is a part of; few or none of any other."""
    known = {"tuned": TUNED, "paper": PAPER}[preset]
    family = dataset.removesuffix("-test").removesuffix("-train")
    # One section of the paper starts from DSC-Net on 2,000 random images, another from k-means.
    start = {"init": dsc_start} if preset == "paper" else {}
    return start | known.get(dataset, known.get(family, {}))
