"""Speed of wavelet scattering and of the features built on it. Run alone on the machine.

    python benchmarks/scattering.py [speed] [features]

speed     images/s of Scattering2D and of kymatio at several batch sizes, in turn, on MNIST in
          32 x 32 with J = 3 and L = 8; the largest difference between the two; the share of the
          matrix-product peak
features  seconds and memory of pixels -> scattering -> PCA 150 on all 70,000 images of MNIST
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import scipy.special
import torch
from record import write
from torch.utils.flop_counter import FlopCounterMode

from kscn import data
from kscn.data import as_source
from kscn.features import PCAFeatures, Scattering2D, ScatteringFeatures

OURS = (64, 256, 1024)
KYMATIO = (32, 64, 128, 256, 512)
ROUNDS = 3


def kymatio(shape: tuple[int, int], J: int) -> Any:
    # kymatio 0.3.0 imports a function that SciPy has dropped, for transforms not used here.
    if not hasattr(scipy.special, "sph_harm"):
        scipy.special.sph_harm = None
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    return ScatteringTorch2D(J, shape)


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def matmul_peak() -> float:
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    return 2 * 2048**3 / min(seconds(lambda: a @ b) for _ in range(6))


def speed(images: torch.Tensor) -> Any:
    ours, theirs = Scattering2D((32, 32)), kymatio((32, 32), 3)
    x = torch.nn.functional.pad(images, (2, 2, 2, 2)).float() / 255
    times: dict[str, dict[int, list[float]]] = {
        "ours": {b: [] for b in OURS},
        "kymatio": {b: [] for b in KYMATIO},
    }
    with torch.inference_mode():
        difference = ours(x[:256]) - (reference := theirs(x[:256]))
        for _ in range(ROUNDS + 1):  # in turn, so that both meet the same machine
            for b in OURS:
                times["ours"][b].append(seconds(lambda b=b: ours(x[:b])) / b)
            for b in KYMATIO:
                times["kymatio"][b].append(seconds(lambda b=b: theirs(x[:b])) / b)
        with FlopCounterMode(display=False) as counter:
            ours._scatter(x[: ours.images_at_once])
    sparse = sum(2 * part.weights.numel() * ours.L for group in ours.second for part in group)
    sparse += sum(2 * part.weights.numel() for group in ours.first for part in group)
    flop = counter.get_total_flops() / ours.images_at_once + sparse
    rates = {
        name: {b: 1 / min(rounds[1:]) for b, rounds in sizes.items()}
        for name, sizes in times.items()
    }
    best = {name: max(sizes.values()) for name, sizes in rates.items()}
    peak = matmul_peak()
    figures = {
        "images_per_second": rates,
        "best": best,
        "ratio": best["ours"] / best["kymatio"],
        # Of a map's largest value, the worst over all maps of all images.
        "largest_relative_difference": float(
            (difference.abs().amax((2, 3)) / reference.abs().amax((2, 3))).max()
        ),
        "flop_per_image": flop,
        "matmul_peak_gflops": peak / 1e9,
        "share_of_peak": best["ours"] * flop / peak,
    }
    print("speed", figures)
    return figures


def features(images: np.ndarray) -> Any:
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scattering, pca = ScatteringFeatures(), PCAFeatures(150)
    figures: dict[str, Any] = {"images": len(images)}
    held: dict[str, Any] = {}
    steps = {
        "scattering": lambda: held.update(x=scattering.fit_transform(images)),
        "pca_fit": lambda: pca.fit(as_source(held["x"])),
        "pca_transform": lambda: held.update(z=pca.transform(held["x"])),
    }
    for name, step in steps.items():
        figures[f"{name}_seconds"] = seconds(step)
    figures["seconds"] = sum(figures[f"{name}_seconds"] for name in steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures["peak_growth_mb"] = (peak - resident) / 1024
    figures["explained_variance_share"] = float(
        pca.explained_variance_.sum() / held["x"].var(axis=0, ddof=1, dtype="f8").sum()
    )
    print("features", figures)
    return figures


def main(names: list[str]) -> None:
    images = data.load("mnist").samples[:]
    config = {
        "J": 3,
        "L": 8,
        "rounds": ROUNDS,
        "threads": torch.get_num_threads(),
        "kymatio": version("kymatio"),
    }
    figures: dict[str, Any] = {}
    if "features" in names:  # first: the peak is that of the whole process
        figures["features"] = features(images)
    if "speed" in names:
        figures["speed"] = speed(torch.tensor(images[: max(OURS)]))
    write("scattering", config, figures)


if __name__ == "__main__":
    main(sys.argv[1:] or ["features", "speed"])
