"""Images per second through our networks and through others: entries of results/speed.json.

    python benchmarks/speed/encode.py training scattering     on a quiet machine

training    epochs of pretraining of the paper's network against the plain loop: the same network,
            loss, optimiser and batch written with torch's modules in their default layout
scattering  Scattering2D against kymatio at several batch sizes, on MNIST in 32 x 32, J = 3, L = 8

Rounds of ours and of the others take turns, so that both meet the same machine, and the fastest of
each counts. `--small` takes few images, to see that it runs. MNIST: `kscn data get mnist`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import nn

from kscn import KSCN, data
from kscn.features import Scattering2D

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `record`
import record

BATCH, ROUNDS = 256, 5


class Plain(nn.Module):
    """The paper's network as one would write it down first."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv2d(1, 20, 5, 2, 2), nn.ReLU()),
            *(nn.Conv2d(20, 10, 3, 2, 1), nn.ReLU()),
            *(nn.Conv2d(10, 5, 3, 2, 1), nn.ReLU()),
        )
        self.decoder = nn.Sequential(
            *(nn.ConvTranspose2d(5, 10, 3, 2, 1), nn.ReLU()),
            *(nn.ConvTranspose2d(10, 20, 3, 2, 1, 1), nn.ReLU()),
            nn.ConvTranspose2d(20, 1, 5, 2, 2, 1),
        )


def plain_epoch(images: np.ndarray) -> float:
    """Seconds of the second epoch of the plain loop."""
    net, pixels = Plain(), torch.from_numpy(images)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)

    def epoch() -> None:
        for rows in torch.randperm(len(pixels)).split(BATCH):
            x = pixels[rows].unsqueeze(1).float() / 255
            loss = (net.decoder(net.encoder(x)) - x).square().sum() / len(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    epoch()
    return seconds(epoch)


def training(images: np.ndarray) -> dict[str, Any]:
    def ours() -> float:
        history = fitted(images).history_
        ends = [entry["seconds"] for entry in history if entry["stage"] == "pretrain"]
        return ends[1] - ends[0]

    # In a process of its own: a fit leaves the allocator of its process in a better state.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as apart:
        plain = partial(apart.submit, plain_epoch, images)
        return compared({"ours": ours, "plain": lambda: plain().result()}, len(images))


@torch.inference_mode()
def scattering(images: np.ndarray) -> dict[str, Any]:
    ours, theirs = Scattering2D((32, 32)), kymatio((32, 32), 3)
    sizes = [size for size in (64, 256, 1024) if size <= len(images)]
    x = nn.functional.pad(torch.from_numpy(images[: sizes[-1]]), (2, 2, 2, 2)).float() / 255

    def fastest(transform: Any) -> float:
        """Seconds for all images at the best of the batch sizes."""
        return min(seconds(lambda n=size: transform(x[:n])) / size for size in sizes) * len(x)

    difference, reference = ours(x[:64]) - theirs(x[:64]), theirs(x[:64])
    figures = compared({"ours": lambda: fastest(ours), "kymatio": lambda: fastest(theirs)}, len(x))
    # Of a map's largest value, the worst over all maps of all images.
    worst = (difference.abs().amax((2, 3)) / reference.abs().amax((2, 3))).max()
    return figures | {"largest_relative_difference": float(worst), "kymatio": version("kymatio")}


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def kymatio(shape: tuple[int, int], scales: int) -> Any:
    # kymatio 0.3.0 imports a function that SciPy has dropped, for transforms not used here.
    if not hasattr(scipy.special, "sph_harm"):
        scipy.special.sph_harm = None
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    return ScatteringTorch2D(scales, shape)


def fitted(images: np.ndarray) -> KSCN:
    """A fit of the paper's network, as short as can be."""
    settings = {"pretrain_epochs": 2, "epochs": 1, "n_init": 1, "init": "drawn"}
    settings |= {"subspace_dim": 3, "batch_size": BATCH, "random_state": 0}
    return KSCN.from_preset("paper", 10, **settings).fit(images)


def compared(work: dict[str, Callable[[], float]], n: int) -> dict[str, Any]:
    """Rates of the fastest rounds after a first one, and their ratio."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS + 1):
        for name, run in work.items():
            times[name].append(run())
    rates = {name: n / min(rounds[1:]) for name, rounds in times.items()}
    ours, theirs = rates.values()
    return {"images_per_second": rates, "ratio": round(ours / theirs, 2)}


PARTS = {part.__name__: part for part in (training, scattering)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--small", action="store_true", help="tiny, and nothing is written")
    options = parser.parse_args(arguments)
    if options.small:  # noise instead of MNIST, which may not be there
        images = np.random.default_rng(0).integers(0, 256, (BATCH, 28, 28), dtype=np.uint8)
    else:
        images = np.asarray(data.load("mnist").samples)[: 60 * BATCH]
    for part in options.parts or PARTS:
        figures = PARTS[part](images)
        print(part, json.dumps(figures))
        if not options.small:
            config = {"batch_size": BATCH, "images": len(images)}
            config |= {"threads": torch.get_num_threads(), "load": os.getloadavg()}
            record.write("speed", config, figures, entry=part)


if __name__ == "__main__":
    main()
