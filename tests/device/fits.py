"""Fits that have to end alike on every device: written once, for the simulated and real ones."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kscn import KSCN, KSCNPlus, KSubspaces
from kscn_paper.rivals import make

CALLS = ("predict", "transform", "residuals", "predict_proba")


@lru_cache
def planes():
    """Three planes in eight dimensions, 240 samples, some of them far from the origin."""
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.standard_normal((3, 8, 2)))[0]
    labels = rng.permutation(np.repeat([0, 1, 2], [120, 70, 50]))
    samples = np.einsum("nij,nj->ni", bases[labels], rng.standard_normal((240, 2)))
    return (samples + 0.02 * rng.standard_normal(samples.shape)).astype(np.float32)


def weights():
    return np.random.default_rng(1).uniform(0.5, 1.5, len(planes()))


def _subspaces(device, weighted=False, **settings):
    settings = {"subspace_dim": 2, "n_init": 2, "random_state": 0, **settings}
    model = KSubspaces(3, device=device, **settings)
    return model.fit(planes(), sample_weight=weights() if weighted else None), planes()


def linear(device):
    return _subspaces(device)


def automatic(device):
    return _subspaces(device, subspace_dim="auto", n_init=1, init="neighbours")


def affine(device):
    return _subspaces(device, affine=True)


def trimmed(device):
    return _subspaces(device, trim=0.1, init="neighbours")


def weighted(device):
    return _subspaces(device, weighted=True, init="k-means")


def trimmed_affine_weighted(device):
    return _subspaces(device, weighted=True, trim=0.1, affine=True, init="k-means")


def wide(device):
    """More dimensions than are decomposed in full."""
    rng = np.random.default_rng(0)
    samples = np.repeat(planes(), 8, axis=1) + 0.02 * rng.standard_normal((240, 64))
    model = KSubspaces(3, subspace_dim=2, n_init=1, random_state=0, tol=0, device=device)
    return model.fit(samples), samples


def empty_clusters(device):
    """More clusters than the data has: some lose their members and get new places."""
    start = np.zeros(240, dtype=int)
    start[:2] = 1, 2
    settings = {"subspace_dim": 2, "init": start, "random_state": 0, "device": device}
    return KSubspaces(4, **settings).fit(planes()), planes()


@lru_cache
def images(kind="uint8"):
    """Bars at four angles on 8 x 8 pixels, 96 images."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:8, :8] - 3.5
    angles = np.pi / 4 * rng.integers(4, size=96) + 0.05 * rng.standard_normal(96)
    away = x * np.cos(angles)[:, None, None] + y * np.sin(angles)[:, None, None]
    bars = 200 * np.exp(-(away**2)) + rng.uniform(0, 20, (96, 8, 8))
    return bars.astype(kind)


SMALL = {"channels": [16, 16], "kernels": [3, 3]}


def _deep(device, samples, **settings):
    shared = {"subspace_dim": 2, "n_init": 1, "pretrain_epochs": 3, "epochs": 2, "batch_size": 16}
    shared |= {"learning_rate": 2e-3, "latent": "identity", "loss": "residual", "weight": 0.08}
    shared |= {"augment": None, "schedule": "constant", "balance": 0.0, "init_dim": None}
    model = KSCN(4, device=device, random_state=0, tol=0, **shared | settings)
    return model.fit(samples), samples


def svd_on_images(device):
    return _deep(device, images(), autoencoder_params=SMALL)


def grassmann_on_images(device):
    return _deep(device, images(), update="grassmann", autoencoder_params=SMALL)


def svd_on_vectors(device):
    return _deep(device, planes(), autoencoder_params={"hidden": [16], "latent_dim": 6})


def grassmann_on_vectors(device):
    settings = {"update": "grassmann", "schedule": "one-cycle"}
    settings |= {"augment": "noise", "init": "k-means"}
    return _deep(device, planes(), autoencoder_params={"hidden": [16], "latent_dim": 6}, **settings)


def separated_images(device):
    """What the preset for images uses: whitened latents, separation, augmentation."""
    settings = {"latent": "whitened", "latent_dim": 8, "loss": "separation", "balance": 0.1}
    settings |= {"augment": {"kind": "elastic", "flip": True}, "weight": 1.0, "init_dim": 1}
    return _deep(device, images("float32"), autoencoder_params=SMALL, **settings)


def scattered_start(device):
    """Subspaces begin with clusters that were found in scattering coefficients."""
    return _deep(device, images(), autoencoder_params=SMALL, init="scattering")


DEEP = [
    svd_on_images,
    grassmann_on_images,
    scattered_start,
    svd_on_vectors,
    grassmann_on_vectors,
    separated_images,
]


def plus_on_vectors(device):
    return KSCNPlus(3, starts=3, device=device, random_state=0).fit(planes()), planes()


def many_images():
    """As many images as growth and refinement need at the least."""
    return np.concatenate([images()] * 3)


def plus_on_images(device):
    """Growth and refinement."""
    samples = many_images()
    settings = {"starts": 3, "refine": True, "epochs": 2, "batch_size": 48}
    return KSCNPlus(4, device=device, random_state=0, **settings).fit(samples), samples


PLUS = [plus_on_vectors, plus_on_images]
LINEAR = [
    linear,
    automatic,
    affine,
    trimmed,
    weighted,
    trimmed_affine_weighted,
    wide,
    empty_clusters,
]


SMALL_NETWORK = {"pretrain_epochs": 2, "cache": False, "batch_size": 32}
SMALL_SAE = SMALL_NETWORK | {"autoencoder_params": {"hidden": [16], "latent_dim": 4}}
SMALL_CAE = SMALL_NETWORK | {"autoencoder_params": SMALL}
BASELINES = {
    "k-means": {"n_init": 1},
    "pca-ks": {"n_init": 2},
    "sae-km": SMALL_SAE | {"layer_epochs": 1, "n_init": 1},
    "cae-km": SMALL_CAE | {"n_init": 1},
    "dec": SMALL_SAE | {"layer_epochs": 0, "n_init": 1, "max_iter": 2, "update_every": 4},
    "idec": SMALL_SAE | {"layer_epochs": 0, "n_init": 1, "max_iter": 2, "update_every": 4},
    "dcn": SMALL_SAE | {"layer_epochs": 0, "n_init": 1, "epochs": 2},
    "ssc": {},
    "lrr": {},
    "kssc": {},
    "ssc-omp": {},
    "dsc-net": {"pretrain_epochs": 2, "epochs": 2, "autoencoder_params": SMALL},
    "edesc": {"hidden": [16], "subspace_dim": 2, "pretrain_epochs": 2, "epochs": 2, "n_init": 1},
    "k-fsc": {"subspace_dim": 2, "n_init": 1, "max_iter": 3},
    "ssc-sae": SMALL_SAE | {"layer_epochs": 0},
}


def baseline(name, device):
    """A baseline of this name, fitted to images."""
    samples = images()
    model = make(name, 4, device=device, random_state=0, **BASELINES[name])
    return model.fit(samples), samples
