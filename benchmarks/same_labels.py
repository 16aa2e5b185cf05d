"""Whether a change of the code leaves all labels as they were, to the bit.

    OMP_NUM_THREADS=1 python benchmarks/same_labels.py before.json
    OMP_NUM_THREADS=1 python benchmarks/same_labels.py after.json --compare before.json

Fits every baseline, `KSubspaces`, `KSCN` (both updates, both presets) and `KSCNPlus` for a few
epochs on some hundred of scikit-learn's digits, as images and as vectors, with one seed and one
thread, and writes a checksum of the labels of each fit. Two methods that begin on a subsample of
many also get more samples than that. `KSubspaces` is also fitted by two processes. With
`--compare`, fits whose labels differ from those of another file are listed, and the exit code is 1
if there are any. `--only` fits those whose name contains a word.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from kscn import KSCN, KSCNPlus, KSubspaces, data
from kscn_paper import rivals
from kscn_paper.rivals.self_expression import dsc_start

# More than 600 samples, so that eigenvectors of affinities are found by iterations too.
K, SEED, SAMPLES = 10, 0, 640

# Baselines with few epochs. A name may be followed by what is special about the fit.
NETWORK = {"pretrain_epochs": 3, "batch_size": 32, "cache": False}
SAE = NETWORK | {"layer_epochs": 2, "autoencoder_params": {"hidden": (64, 32), "latent_dim": 8}}
CAE = NETWORK | {"autoencoder_params": {"channels": (8, 4), "kernels": (3, 3)}}
JOINT = {"max_iter": 3, "update_every": 8}
BASELINES: dict[str, dict[str, Any]] = {
    "k-means": {},
    "pca-ks": {},
    "pca-ks, given dimensions": {"pca_dim": 12, "subspace_dim": 3},
    "sae-km": SAE,
    "cae-km": CAE,
    "dec": SAE | JOINT,
    "idec": SAE | JOINT,
    "dcn": SAE | {"epochs": 3},
    "dcn-cae": CAE | {"epochs": 3},
    "ssc": {},
    "ssc, keep": {"keep": 0.8, "shared_weight": False},
    "lrr": {},
    "kssc": {},
    "ssc-omp": {},
    "dsc-net": {"pretrain_epochs": 2, "epochs": 2},
    "dsc-net, sae": {"pretrain_epochs": 2, "epochs": 2, "autoencoder": "sae"},
    "edesc": {"pretrain_epochs": 3, "epochs": 3, "hidden": (64, 32), "tol": 0.0},
    "k-fsc": {"subspace_dim": 4, "max_iter": 4, "n_init": 2},
    "k-fsc, k-means": {"subspace_dim": 4, "max_iter": 4, "init": "k-means", "penalty": 4.0},
    **{name: SAE if name.endswith("sae") else CAE for name in rivals.COMPOSITES},
}
# Fits of more samples than the 10,000 that these methods begin with.
MANY: dict[str, dict[str, Any]] = {
    "edesc": {"pretrain_epochs": 1, "epochs": 1, "hidden": (16,), "subspace_dim": 2},
    "k-fsc": {"subspace_dim": 2, "max_iter": 2},
}


class TwoProcesses:
    """An estimator that is fitted by two processes of one thread each, which gloo connects."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def fit(self, samples: NDArray) -> TwoProcesses:
        """Keep the labels that the first process finds."""
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_fit_with_others, (self.make, samples, folder), nprocs=2)
            self.labels_ = np.load(f"{folder}/labels.npy")
        return self


def _fit_with_others(rank: int, make: Callable[[], Any], samples: NDArray, folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    labels = make().fit(samples).labels_
    if rank == 0:
        np.save(f"{folder}/labels.npy", labels)
    dist.destroy_process_group()


DEEP: dict[str, Any] = {"pretrain_epochs": 3, "epochs": 3, "batch_size": 32}
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "KSubspaces": partial(KSubspaces, K, random_state=SEED),
    "KSubspaces, affine": partial(KSubspaces, K, affine=True, trim=0.1, random_state=SEED),
    "KSubspaces, two processes": partial(
        TwoProcesses, partial(KSubspaces, K, affine=True, trim=0.1, random_state=SEED)
    ),
    **{
        f"KSCN {update}, {preset}": partial(
            KSCN.from_preset,
            preset,
            K,
            update=update,
            subspace_dim=3,
            random_state=SEED,
            **init,
            **DEEP,
        )
        for update in ("svd", "grassmann")
        for preset, init in (("paper", {"init": dsc_start}), ("tuned", {}))
    },
    "KSCN svd, from dsc": partial(KSCN, K, init=dsc_start, random_state=SEED, **DEEP),
    "KSCNPlus": partial(KSCNPlus, K, starts=2, random_state=SEED),
    "KSCNPlus, refined": partial(KSCNPlus, K, starts=2, refine=True, epochs=2, random_state=SEED),
}


def panel() -> dict[str, tuple[Callable[[], Any], NDArray]]:
    """Every fit by its name: how to make the estimator, and the samples."""
    images = load_digits().images[:SAMPLES].astype(np.float32)
    kinds = {"images": images, "vectors": images.reshape(SAMPLES, -1)}
    made: dict[str, Callable[[], Any]] = {
        name: partial(rivals.make, name.split(",")[0], K, random_state=SEED, **params)
        for name, params in BASELINES.items()
    }
    missing = {*rivals.NAMES, *rivals.COMPOSITES} - {name.split(",")[0] for name in made}
    assert not missing, f"the panel has no fit of {missing}"
    images_only = ("cae", "refined", "two processes")
    many, _, _ = data.make_union_of_subspaces(10_500, 3, 12, 2, noise=0.1, random_state=SEED)
    return {
        f"{name} ({kind})": (make, samples)
        for name, make in (made | ESTIMATORS).items()
        for kind, samples in kinds.items()
        if kind == "images" or not any(word in name for word in images_only)
    } | {
        f"{name} (many)": (partial(rivals.make, name, 3, random_state=SEED, **params), many)
        for name, params in MANY.items()
    }


def checksum(labels: NDArray) -> str:
    """SHA-256 of labels, whatever integers they are stored as."""
    return hashlib.sha256(np.asarray(labels, dtype="<i8").tobytes()).hexdigest()


def main() -> int:
    """Fit the panel, write the checksums, compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, help="JSON to write")
    parser.add_argument("--compare", type=Path, help="JSON of another run")
    parser.add_argument("--only", default="", help="fits whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # fits as short as these do not converge
    found: dict[str, str] = {}
    for name, (make, samples) in panel().items():
        if options.only in name:
            began = time.perf_counter()
            found[name] = checksum(make().fit(samples).labels_)
            print(f"{time.perf_counter() - began:6.1f} s  {found[name][:12]}  {name}", flush=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.compare is None:
        return 0
    before = json.loads(options.compare.read_text(encoding="utf-8"))
    differ = [name for name in found if before.get(name) != found[name]]
    for name in differ:
        print(f"differs: {name}" if name in before else f"new: {name}")
    print(f"{len(found) - len(differ)} of {len(found)} fits have the same labels.")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
