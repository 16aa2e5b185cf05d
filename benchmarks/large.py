"""Millions of images on disk against 70,000 in memory: speed per image and peak memory.

    python benchmarks/large.py --folder SCRATCH [--images 8000000] [--threads 2]

Digits of MNIST, each turned, sheared, scaled and shifted by its own draw, are written to SCRATCH as
one array of bytes. k-subspaces is then fitted on 50 principal components, which are themselves
written to disk, and kSCN (preset `tuned`, network trained before on 70,000 images) for two epochs;
first on 70,000 images held in memory, then on 700,000 and on all of them on disk, each in a process
of its own. Results are written after every part, and parts that SCRATCH has the result of are not
repeated. Needs MNIST (kscn data get mnist, or KSCN_DATA) and 800 bytes of disk per image, and 200
more for the components.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import record

SMALL, MIDDLE = 70_000, 700_000
COMPONENTS, CLUSTERS = 50, 10
SLICE = 20_000


def main() -> None:
    """Write the images, measure every part, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--images", type=int, default=8_000_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.part:
        kind, n = options.part.split(":")
        print(json.dumps(PARTS[kind](options.folder, int(n))))
        return
    figures: dict[str, Any] = {}
    sizes = [SMALL, *(n for n in (MIDDLE, options.images) if n > SMALL)]
    parts = [f"write:{options.images}", f"pretrain:{SMALL}"]
    parts += [f"{kind}:{n}" for kind in ("k-subspaces", "kscn") for n in sizes]
    for part in parts:
        figures[part] = measured(options, part)
        print(part, json.dumps(figures[part]), flush=True)
        config = {"images": options.images, "threads": options.threads, "load": os.getloadavg()}
        record.write("large", config, figures | ratios(figures, sizes))


def ratios(figures: dict[str, Any], sizes: list[int]) -> dict[str, Any]:
    """Images per second of each size over those of the small set in memory."""
    found = {}
    for kind in ("k-subspaces", "kscn"):
        done = {n: figures[f"{kind}:{n}"] for n in sizes if f"{kind}:{n}" in figures}
        if SMALL in done:
            base = done[SMALL]["samples_per_second"]
            found[f"{kind}, of the rate in memory"] = {
                n: round(part["samples_per_second"] / base, 3) for n, part in done.items()
            }
    return found


def measured(options: argparse.Namespace, part: str) -> dict[str, Any]:
    """What a part measured, in a process of its own or in an earlier run."""
    kept = options.folder / f"{part.replace(':', '-')}.json"
    if not kept.exists():
        command = [sys.executable, __file__, "--folder", str(options.folder), "--part", part]
        threads = {"OMP_NUM_THREADS": str(options.threads)}
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | threads
        )
        kept.write_text(ended.stdout.splitlines()[-1])
    return dict(json.loads(kept.read_text()))


def write(folder: Path, n: int) -> dict[str, Any]:
    """Write n deformed digits and their classes."""
    import torch

    from kscn import data
    from kscn.nn import RandomAffine

    digits = data.load("mnist")
    pixels, classes = np.asarray(digits.samples), np.asarray(digits.labels)
    images = np.lib.format.open_memmap(folder / "images.npy", "w+", np.uint8, (n, 28, 28))
    labels = np.lib.format.open_memmap(folder / "classes.npy", "w+", np.uint8, (n,))
    generator, deform = torch.Generator().manual_seed(0), RandomAffine()
    began = time.perf_counter()
    for begin in range(0, n, SLICE):
        size = min(SLICE, n - begin)
        drawn = torch.randint(len(pixels), (size,), generator=generator).numpy()
        batch = torch.from_numpy(pixels[drawn]).float()[:, None]
        images[begin : begin + size] = deform(batch, generator)[:, 0].round().byte().numpy()
        labels[begin : begin + size] = classes[drawn]
    images.flush()
    labels.flush()
    return {"seconds": time.perf_counter() - began, "bytes": (folder / "images.npy").stat().st_size}


def pretrain(folder: Path, n: int) -> dict[str, Any]:
    """The network that all runs of kSCN begin with."""
    from kscn import KSCN

    images = np.load(folder / "images.npy", mmap_mode="r")[:n]
    began = time.perf_counter()
    KSCN.from_settings(CLUSTERS, **settings() | {"epochs": 1}).fit(np.array(images)).save(
        folder / "pretrained"
    )
    return {"seconds": time.perf_counter() - began}


def kscn(folder: Path, n: int) -> dict[str, Any]:
    """Two epochs of kSCN; the rate is that of both, with their encoding and updates."""
    from kscn import KSCN

    own = {"pretrained": folder / "pretrained", "pretrain_epochs": 0, "epochs": 2, "tol": 0.0}
    model = KSCN.from_settings(CLUSTERS, **settings() | own)
    found = fitted(model, samples(folder / "images.npy", n))
    last = max(r["seconds"] for r in model.history_ if r["stage"] != "fit")
    epochs = [r["seconds"] for r in model.history_ if r["stage"] == "fit"]
    rate = {"samples_per_second": n * len(epochs) / (epochs[-1] - last)}
    return rate | found | score(folder, model.labels_)


def settings() -> dict[str, Any]:
    """Of the preset, for images of this kind."""
    from kscn.estimators import presets

    return presets.parameters("tuned", "kscn-s", "mnist", (28, 28)) | {"random_state": 0}


def k_subspaces(folder: Path, n: int) -> dict[str, Any]:
    """Components, written to disk, and a fit on them from its search to its end."""
    from kscn import KSubspaces
    from kscn.features import PCAFeatures

    images = samples(folder / "images.npy", n).reshape(n, -1)
    began = time.perf_counter()
    features = PCAFeatures(COMPONENTS).fit(images).source(images)
    path = folder / f"components-{n}.npy"
    written = np.lib.format.open_memmap(path, "w+", np.float32, (n, COMPONENTS))
    for begin, rows in features.batches(SLICE):
        written[begin : begin + len(rows)] = rows
    written.flush()
    del written
    reducing = time.perf_counter() - began
    model = KSubspaces(CLUSTERS, subspace_dim=10, random_state=0)
    found = fitted(model, samples(path, n))
    path.unlink()
    ends = [r["seconds"] for r in model.history_ if r["stage"] == "fit"]
    began = max(r["seconds"] for r in model.history_ if r["stage"] == "search")
    # How many iterations a fit takes differs, and later ones skip what cannot change: the first
    # ten are compared, and the components before them.
    ten = ends[min(9, len(ends) - 1)] - began
    facts = {
        "samples_per_second": n / (reducing + ten),
        "components_seconds": reducing,
        "ten_iterations_seconds": ten,
        "iterations": len(ends),
        "all_iterations_seconds": ends[-1] - began,
    }
    return facts | found | score(folder, model.labels_)


def samples(path: Path, n: int) -> Any:
    """The first n samples: in memory if they are few, else as the file that they are in."""
    array = np.load(path, mmap_mode="r")[:n]
    return np.array(array) if n <= SMALL else array


def fitted(model: Any, X: Any) -> dict[str, Any]:
    """Fit, and tell time and memory."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    return {"seconds": time.perf_counter() - began, "peak_resident_mb": record.resident("VmHWM")}


def score(folder: Path, found: Any) -> dict[str, float]:
    """Against the classes, after the fact."""
    from kscn import metrics

    classes = np.load(folder / "classes.npy", mmap_mode="r")[: len(found)]
    return {"acc": metrics.clustering_accuracy(np.asarray(classes), found)}


PARTS = {"write": write, "pretrain": pretrain, "k-subspaces": k_subspaces, "kscn": kscn}

if __name__ == "__main__":
    main()
