"""Speed of the deep part on MNIST. Run alone on the machine.

    python benchmarks/deep.py [train] [encode] [update] [memory]

train   images/s of one training step against the plain loop: the same network, loss, optimiser and
        batch written with torch's modules in their default layout
encode  images/s of the encoder, the same comparison
update  what the subspace updates cost, as a share of an epoch
memory  peak resident memory of a short fit beyond the data
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
from record import write
from torch import nn

from kscn import KSCN, data
from kscn.data import as_source
from kscn.nn import ConvAutoencoder, IdentityLatent, InputScaling
from kscn.runtime.latents import Encoder
from kscn.runtime.minibatches import Minibatches
from kscn.stages.pretrain import Trainer

BATCH = 256
IMAGES = 60 * BATCH
ROUNDS = 5


class Plain(nn.Module):
    """The paper's network as one would write it down first."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 20, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(20, 10, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(10, 5, 3, 2, 1),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(5, 10, 3, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(10, 20, 3, 2, 1, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(20, 1, 5, 2, 2, 1),
        )


# Multiply-adds of the two halves for one 28 x 28 image; training does three times the work of a
# forward pass (forward, gradient of the input, gradient of the weights; the first layer needs no
# gradient of its input).
FIRST = 14 * 14 * 25 * 20
HALF = FIRST + 7 * 7 * 9 * 20 * 10 + 4 * 4 * 9 * 10 * 5
TRAIN_FLOP = 2 * (3 * 2 * HALF - FIRST)
ENCODE_FLOP = 2 * HALF


def plain_epoch(net: Plain, images: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    order = torch.randperm(len(images))
    for indices in order.split(BATCH):
        x = images[indices].unsqueeze(1).float() / 255
        loss = (net.decoder(net.encoder(x)) - x).square().sum() / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def plain_encode(net: Plain, images: torch.Tensor) -> None:
    with torch.no_grad():
        for block in images.split(BATCH):
            net.encoder(block.unsqueeze(1).float() / 255)


_PLAIN: dict[str, Any] = {}


def plain_seconds(name: str) -> float:
    """One round of the plain loop; runs in a process of its own (see `compare`)."""
    if not _PLAIN:
        net = Plain()
        pixels = torch.from_numpy(data.load("mnist").samples[:IMAGES])
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        _PLAIN["train"] = lambda: plain_epoch(net, pixels, optimizer)
        _PLAIN["encode"] = lambda: plain_encode(net, pixels)
    began = time.perf_counter()
    _PLAIN[name]()
    return time.perf_counter() - began


def compare(name: str, ours: Callable[[], object], flop: int) -> Any:
    """Best of several rounds of each, in turn, so that both meet the same machine.

    The plain loop has a process of its own, because our epochs change how memory is kept.
    """
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        for _ in range(ROUNDS + 1):
            began = time.perf_counter()
            ours()
            seconds["ours"].append(time.perf_counter() - began)
            seconds["plain"].append(other.submit(plain_seconds, name).result())
    peak = matmul_peak()
    rates = {key: IMAGES / min(rounds[1:]) for key, rounds in seconds.items()}
    figures = {
        "images_per_second": rates,
        "ratio": rates["ours"] / rates["plain"],
        "seconds": seconds,
        "matmul_peak_gflops": peak / 1e9,
        "share_of_peak": {key: rate * flop / peak for key, rate in rates.items()},
    }
    print(name, figures)
    return figures


def matmul_peak() -> float:
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    a @ b
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return 2 * 2048**3 / best


def batches_of(images: Any) -> Minibatches:
    source = as_source(images)
    scaling = InputScaling.of(source, image=True)
    return Minibatches(source, scaling, (1, 28, 28), BATCH, torch.device("cpu"))


def train(images: Any) -> Any:
    net = ConvAutoencoder((1, 28, 28))
    trainer = Trainer(
        net,
        IdentityLatent(),
        batches_of(images),
        epochs=1,
        learning_rate=1e-3,
        schedule="constant",
        generator=torch.Generator().manual_seed(0),
        stage="the benchmark",
    )
    return compare("train", trainer.epoch, TRAIN_FLOP)


def encode(images: Any) -> Any:
    encoder = Encoder(ConvAutoencoder((1, 28, 28)), IdentityLatent())
    batches = batches_of(images)

    def ours() -> None:
        for low in range(0, IMAGES, 512):
            encoder(batches.read(low, min(low + 512, IMAGES)))

    return compare("encode", ours, ENCODE_FLOP)


def update(images: Any) -> Any:
    """Two epochs of each variant; the second is looked at."""
    figures = {}
    for kind in ("svd", "grassmann"):
        model = KSCN.from_settings(
            10, update=kind, pretrain_epochs=1, epochs=2, tol=0, n_init=1, random_state=0
        ).fit(images)
        before, last = model.history_[-2:]
        epoch = last["seconds"] - before["seconds"]
        figures[kind] = {
            "epoch_seconds": epoch,
            "update_seconds": last["update_seconds"],
            "share": last["update_seconds"] / epoch,
        }
    print("update", figures)
    return figures


def resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(images: Any) -> Any:
    before = resident()
    KSCN.from_settings(10, pretrain_epochs=1, epochs=1, random_state=0).fit(images)
    figures = {"data_mb": images.nbytes / 2**20, "peak_growth_mb": resident() - before}
    print("memory", figures)
    return figures


def main(names: list[str]) -> None:
    images = data.load("mnist").samples[:]
    config = {"batch_size": BATCH, "images": IMAGES, "threads": torch.get_num_threads()}
    figures: dict[str, Any] = {}
    if "memory" in names:  # first: the peak is that of the whole process
        figures["memory"] = memory(images)
    for name, run in {"train": train, "encode": encode}.items():
        if name in names:
            figures[name] = run(images[:IMAGES])
    if "update" in names:
        figures["update"] = update(images)
    # A part alone has a file of its own, so that it does not replace the others.
    write("deep_speed" if len(names) > 1 else f"deep_speed_{names[0]}", config, figures)


if __name__ == "__main__":
    main(sys.argv[1:] or ["memory", "train", "encode", "update"])
