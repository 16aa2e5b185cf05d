"""Images per second in one process and in two, with one core each.

    python benchmarks/scale.py [--processes 2] [--rounds 3] [--batch-size 256]

Both do the same work: epochs of kSCN (tuned network, mini-batches shared by all processes) and
iterations of k-subspaces over the same samples. Rounds of one and of many processes alternate, and
the fastest of each counts, so that other work on the machine weighs little. A third kind of round,
"apart", has as many processes that share the work but no word: cores share caches and memory, so
what these reach is the most that any exchange of messages could leave.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kscn.runtime.group import Group

IMAGES, VECTORS = 12_000, 1_000_000
BATCH = int(os.environ.get("KSCN_SCALE_BATCH", "256"))
DIM, CLUSTERS, SUBSPACE_DIM = 80, 10, 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=BATCH)
    parser.add_argument("--worker", choices=["together", "apart"], help=argparse.SUPPRESS)
    parser.add_argument("--dry", action="store_true", help="do not write results/scale.json")
    options = parser.parse_args()
    if options.worker:
        work(apart=options.worker == "apart")
        return
    os.environ["KSCN_SCALE_BATCH"] = str(options.batch_size)  # for the workers
    many = str(options.processes)
    best: dict[str, dict[str, float]] = {"1": {}, many: {}, f"{many} apart": {}}
    for _ in range(options.rounds):
        for kind, rates in best.items():
            for name, rate in measure(*kind.split()).items():
                rates[name] = max(rate, rates.get(name, 0.0))
            print(kind, {name: round(rate) for name, rate in rates.items()}, flush=True)
    speedup = {
        kind: {name: round(rate / best["1"][name], 2) for name, rate in rates.items()}
        for kind, rates in best.items()
        if kind != "1"
    }
    print("speedup", speedup)
    if not options.dry:
        import record

        config = {
            "batch_size": options.batch_size,
            "images": IMAGES,
            "vectors": [VECTORS, DIM],
            "rounds": options.rounds,
        }
        figures = {"samples per second": best, "speedup": speedup}
        name = "scale" if options.batch_size == BATCH else f"scale_{options.batch_size}"
        record.write(name, config | {"load": os.getloadavg()}, figures)


def measure(processes: str, how: str = "together") -> dict[str, float]:
    """Samples per second of each kind of work, in this many processes of one thread each."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={processes}", __file__, "--worker", how),
    ]
    ended = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return dict(json.loads(ended.stdout.strip().splitlines()[-1]))


def work(apart: bool) -> None:
    """What every process does; the first one tells how fast it was."""
    import torch
    import torch.distributed as dist

    from kscn.runtime.group import ALONE, current_group

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    group = ALONE if apart else current_group()
    rates = rate("kscn", deep(group), IMAGES, 2) | rate("k-subspaces", linear(group), VECTORS, 4)
    if dist.get_rank() == 0:
        print(json.dumps(rates))
    dist.destroy_process_group()


def rate(name: str, step: Callable[[], object], samples: int, steps: int) -> dict[str, float]:
    """Samples per second over some steps, after a first one that is not counted.

    Also per second that a process computes, the busiest one counting: what the machine would do
    with nothing else on it, but for the time that messages take.
    """
    import torch.distributed as dist

    from kscn.runtime.group import current_group

    step()
    fastest = least = float("inf")
    for _ in range(steps):
        dist.barrier()
        began, computed = time.perf_counter(), time.process_time()
        step()
        least = min(least, current_group().largest(time.process_time() - computed))
        dist.barrier()
        fastest = min(fastest, time.perf_counter() - began)
    return {name: samples / fastest, f"{name}, computing": samples / least}


def deep(group: Group) -> Callable[[], object]:
    """An epoch of network steps under the separation loss, encoding, and an update by SVD."""
    import numpy as np
    import torch

    from kscn.data import as_source
    from kscn.nn import ConvAutoencoder, InputScaling, RandomAffine, WhitenedLatent
    from kscn.runtime.group import current_group
    from kscn.runtime.minibatches import Minibatches
    from kscn.stages.alternation import Alternation
    from kscn.stages.pretrain import Trainer
    from kscn.subspaces import Subspaces

    pixels = np.random.default_rng(0).integers(0, 255, (IMAGES, 1, 28, 28), dtype=np.uint8)
    part = current_group().part(as_source(pixels))
    source = part if group.size > 1 else as_source(part[:])  # apart, each has its own samples only
    torch.manual_seed(0)
    network = ConvAutoencoder((1, 28, 28), [16, 32, 8], [5, 3, 3], batch_norm=True)
    latent = WhitenedLatent(network.latent_dim, 30)
    batches = Minibatches(
        source,
        InputScaling(torch.zeros(()), 1 / 255),
        (1, 28, 28),
        current_group().batch_size(BATCH),
        torch.device("cpu"),
    )
    trainer = Trainer(
        network,
        latent,
        batches,
        epochs=100,
        learning_rate=1e-3,
        schedule="constant",
        augment=RandomAffine(),
        generator=torch.Generator().manual_seed(group.rank),
        stage="scaling",
        group=group,
    )
    start = Subspaces(torch.linalg.qr(torch.randn(CLUSTERS, 30, 3)).Q)
    alternation = Alternation(
        trainer,
        start,
        update="svd",
        loss="separation",
        weight=50.0,
        trim=0.1,
        temperature=0.1,
        balance=1.0,
    )
    alternation.begin()

    def next_epoch() -> None:
        alternation.finished = False
        alternation.run(trainer.epochs_done + 1, 0.0, lambda _: None)

    return next_epoch


def linear(group: Group) -> Callable[[], object]:
    """One iteration of k-subspaces over all samples, with trimming and without shortcuts."""
    import torch

    from kscn.data import as_source
    from kscn.runtime.blocks import Blocks
    from kscn.runtime.group import current_group
    from kscn.stages.lloyd import Lloyd
    from kscn.subspaces import Subspaces

    torch.manual_seed(0)
    samples = torch.randn(VECTORS, DIM)
    part = current_group().part(as_source(samples))
    blocks = Blocks(part, torch.float32, torch.device("cpu"))
    loop = Lloyd(
        blocks,
        Subspaces(torch.linalg.qr(torch.randn(CLUSTERS, DIM, SUBSPACE_DIM)).Q),
        trim=0.1,
        weights=None,
        pool=samples[:1000],
        generator=torch.Generator().manual_seed(0),
        accelerate=False,
        group=group,
    )
    return lambda: loop.run(loop.number + 1, 0.0, lambda _: None)


if __name__ == "__main__":
    main()
