"""Damaged files, models, runs and requests against what reads them: results/robustness.json.

    python benchmarks/robustness/fuzz.py files --count 5000
    python benchmarks/robustness/fuzz.py models --count 5000
    python benchmarks/robustness/fuzz.py runs --count 2000
    python benchmarks/robustness/fuzz.py requests --count 2000
    python benchmarks/robustness/fuzz.py files --case 1234      one case again, with the traceback

Small valid files of every format are mutated: bits flipped, ends cut, pieces spliced, numbers
replaced by extreme ones, before and after packing. Each must be read, or refused by a `KscnError`
in one sentence, within bounded time and memory, and no file beside it may change. Cases run in a
process of their own with a limit on its memory, so that a crash of a library is found too, and
depend on nothing but their number and the seed. Requests go over a socket to a real `kscn serve`
and a real `kscn explore` in turn (over_http.py).
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import gzip
import hashlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np

from kscn.data import load
from kscn.errors import KscnError

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import record
from mutations import change_a_value, mutated

BATCH = 100  # cases that a process is asked for at once
SECONDS_PER_CASE = 60
KSCN_MAX_BYTES = 64 * 2**20
MORE_MEMORY = 2**30  # than the process has before the first case
READ_BYTES = 16 * 2**20  # of samples, when a file was accepted

X = np.arange(60, dtype=np.float32).reshape(12, 5) / 7
IMAGES = (np.arange(6 * 8 * 8) * 37 % 251).astype(np.uint8).reshape(6, 8, 8)
GREY, COLOUR = IMAGES[0], np.stack([IMAGES[0]] * 3, axis=-1)


# Files of samples ---------------------------------------------------------------------------------


def written(write: Callable[[io.BytesIO], object]) -> bytes:
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def npy(array: np.ndarray) -> bytes:
    return written(lambda file: np.save(file, array))


def npz(member: bytes) -> bytes:
    def write(file: io.BytesIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("X.npy", member)

    return written(write)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def csv(separator: str = ",", names: str = "a,b,c,d,e,kind", labels: str = "abc") -> bytes:
    lines = [separator.join(names.split(","))] if names else []
    for i, row in enumerate(X):
        cells = [f"{value:.6g}" for value in row] + ([labels[i % len(labels)]] if labels else [])
        lines.append(separator.join(cells))
    return "\n".join([*lines, ""]).encode()


def parquet(packing: str, vectors: bool = False) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    columns: dict[str, Any] = {f"c{i}": X[:, i] for i in range(5)}
    if vectors:
        columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])}
    table = pa.table({**columns, "label": [f"class {i % 3}" for i in range(len(X))]})
    options = {"row_group_size": 5, "compression": packing}
    return written(lambda file: pyarrow.parquet.write_table(table, file, **options))


def h5(**options: Any) -> bytes:
    import h5py

    def write(stream: io.BytesIO) -> None:
        with h5py.File(stream, "w") as file:
            file.create_dataset("X", data=X, **options)
            file["y"] = list(range(len(X)))

    return written(write)


def image(kind: str, pixels: np.ndarray, turned: bool = False) -> bytes:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6  # on its side
    more = {"exif": exif} if turned else {}
    return written(lambda file: Image.fromarray(pixels).save(file, kind, **more))


# Names within the case's folder, and the bytes of a valid file of that kind.
READERS: dict[str, Callable[[], bytes]] = {
    "x.npy": lambda: npy(X),
    "x.npz": lambda: npz(npy(X)),
    "labels.npz": lambda: written(lambda file: np.savez(file, X=X, y=np.arange(len(X)))),
    "x-idx3-ubyte": lambda: idx(IMAGES),
    "x-idx3-ubyte.gz": lambda: gzip.compress(idx(IMAGES), mtime=0),
    "x.csv": csv,
    "label.csv": lambda: csv(";", "a,b,c,d,e,label", "0123456789"),
    "bare.csv": lambda: csv("\t", "", ""),
    "x.parquet": lambda: parquet("snappy"),
    "packed.parquet": lambda: parquet("gzip"),
    "lists.parquet": lambda: parquet("none", True),
    "x.h5": h5,
    "packed.h5": lambda: h5(chunks=(4, 5), compression="gzip"),
    "shards/b.npy": lambda: npy(X),
    "parts/b.parquet": lambda: parquet("snappy"),
    "deep/b.png": lambda: image("png", (GREY * 16.0).astype("uint16")),
    **{
        f"{folder}/b.{kind}": lambda kind=kind, pixels=pixels: image(kind, pixels)
        for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm")
        for folder, pixels in (("grey", GREY), ("colour", COLOUR))
    },
    **{f"turned/b.{k}": lambda k=k: image(k, GREY[:5], True) for k in ("png", "jpeg", "tiff")},
}
# What packs an inner file, so that a mutation within is not caught by the checksum of the outer.
PACKERS: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "x.npz": (npy(X), npz),
    "x-idx3-ubyte.gz": (idx(IMAGES), lambda inner: gzip.compress(inner, mtime=0)),
}


@cache
def valid(name: str) -> bytes:
    return READERS[name]()


def write_files(folder: Path) -> None:
    """Every kind of file, and beside it a second one where a folder is what is read."""
    for name in READERS:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(valid(name))
        if path.parent != folder:
            path.with_name(f"a{path.name}").write_bytes(valid(name))


def read_everything(path: Path) -> None:
    """What a fit does with a file: all samples in order, some at random."""
    # Images of more than 8 bits are read where a size is given.
    samples = (load(path, size=6) if path.name == "deep" else load(path)).samples
    rows = max(1, 2**20 // max(1, samples.row_bytes))
    for first, _ in samples.batches(min(rows, 4096)):
        if first * samples.row_bytes > READ_BYTES:
            break
    samples.take([len(samples) - 1, 0, len(samples) // 2])


# Models -------------------------------------------------------------------------------------------


def write_models(folder: Path) -> None:
    """One small model of each kind."""
    from kscn import KSCN, KSCNPlus, KSubspaces

    vectors = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    pictures = np.random.default_rng(0).random((30, 8, 8), dtype=np.float32)
    short = {"subspace_dim": 2, "pretrain_epochs": 1, "epochs": 1}
    KSubspaces(2, subspace_dim=2, n_init=1, random_state=0).fit(vectors).save(folder / "linear")
    KSCN(2, **short, random_state=0).fit(pictures).save(folder / "images")
    KSCN(2, **short, random_state=0).fit(vectors).save(folder / "vectors")
    KSCNPlus(2, random_state=0).fit(vectors).save(folder / "best")


def open_model(path: Path) -> None:
    from kscn import load_model

    load_model(path)


# Runs ---------------------------------------------------------------------------------------------


def write_run(folder: Path) -> None:
    """A finished run, with its data within."""
    run = folder / "run"
    run.mkdir()
    np.save(run / "x.npy", np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32))
    kscn("fit", run / "x.npy", "-k", 2, "-o", folder / "fitted", "--seed", 0,
         "--method", "k-subspaces", "--subspace-dim", 2, "--n-init", 1)  # fmt: skip
    (folder / "fitted").rename(run / "run")


def kscn(*words: object) -> None:
    """A command in this process."""
    from kscn.cli import cli

    with redirect_stdout(io.StringIO()):
        try:
            cli.main([str(word) for word in words], prog_name="kscn", standalone_mode=False)
        except click.ClickException as refusal:
            raise KscnError(refusal.format_message()) from refusal


def use_run(path: Path) -> None:
    """What users do with a run: look at it, score it, make its page, label more, let it go on."""
    np.save(path / "y.npy", np.arange(60) % 2)
    run, refusals = path / "run", []
    uses = [("info", run), ("evaluate", run, "--labels", path / "y.npy"), ("report", run)]
    uses += [("predict", run, path / "x.npy", "-o", path / "new.csv"), ("fit", "--resume", run)]
    for use in uses:
        try:
            kscn(*use)
        except KscnError as error:
            one_sentence(error)
            refusals.append(error)
    if len(refusals) > 1:  # a run that is whole is finished, which `--resume` says
        raise refusals[0]


# One case, and many -------------------------------------------------------------------------------

# What writes a folder of valid things, and what is done with one of them.
PARTS: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "files": (write_files, read_everything),
    "models": (write_models, open_model),
    "runs": (write_run, use_run),
}


@cache
def originals(part: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kscn-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    PARTS[part][0](folder)
    return folder


def damaged(part: str, folder: Path, rng: random.Random) -> tuple[str, Path]:
    """A copy of something valid with one damaged file: what was done, and where it is."""
    original = rng.choice(sorted(originals(part).iterdir()))
    path = folder / original.name
    if original.is_dir():
        shutil.copytree(original, path)
    else:
        shutil.copy(original, path)
    files = [file for file in sorted([path, *path.rglob("*")]) if file.is_file()]
    file = rng.choice(files)
    content, how = file.read_bytes(), rng.choice(["bytes", "bytes", "within", "within", "gone"])
    if how == "within" and file.name in PACKERS:
        inner, pack = PACKERS[file.name]
        file.write_bytes(pack(mutated(inner, rng, ".npy")))
    elif how == "within" and file.suffix in (".json", ".jsonl"):
        *lines, last = (
            content.decode().strip().split("\n") if file.suffix == ".jsonl" else [content]
        )
        described = json.loads(last)
        change_a_value(described, rng)
        file.write_text("\n".join([*lines, json.dumps(described), ""]))
    elif how == "within" and file.suffix == ".safetensors":
        file.write_bytes(with_other_array(content, rng))
    elif how == "gone" and original.is_dir():
        file.unlink()
    else:
        file.write_bytes(mutated(content, rng, file.suffix))
    if rng.random() < 0.9:
        repair_checksums(file.parent)
    return f"{how} {file.relative_to(folder)}", path


# Types of safetensors by their bytes, also those that numpy lacks.
TYPES = {"F8_E4M3": 1, "I8": 1, "BOOL": 1, "BF16": 2, "F16": 2, "I16": 2, "F32": 4, "I32": 4,
         "F64": 8, "I64": 8, "C64": 8}  # fmt: skip


def with_other_array(content: bytes, rng: random.Random) -> bytes:
    """A valid safetensors file in which one array has another type or shape."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    values = {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}
    name = rng.choice(sorted(header))
    entry = header[name]
    if rng.random() < 0.5:
        entry["dtype"] = rng.choice(list(TYPES))
    else:  # empty, maybe wide, or with a length too many
        entry["shape"] = rng.choice([[0], [0, 2**40], [2**62, 0], [0, 0, 0], [1, *entry["shape"]]])
    size = TYPES[entry["dtype"]] * int(np.prod(entry["shape"], dtype=object))
    values[name] = (values[name] + bytes(min(size, 2**20)))[:size]
    where = 0
    for key, entry in header.items():
        entry["data_offsets"] = [where, where := where + len(values[key])]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(values[key] for key in header)


def repair_checksums(folder: Path) -> None:
    """Let the manifest of a model say what its arrays are now, so that more than that is tried."""
    tensors, manifest = folder / "model.safetensors", folder / "manifest.json"
    with suppress(OSError, ValueError, TypeError):
        content, described = tensors.read_bytes(), json.loads(manifest.read_bytes())
        described |= {"tensors_bytes": len(content)}
        described |= {"tensors_sha256": hashlib.sha256(content).hexdigest()}
        manifest.write_text(json.dumps(described))


def run_case(part: str, seed: int, number: int, folder: Path) -> tuple[str, str]:
    """Run one case in a fresh sub-folder; returns its kind and "accepted" or "refused".

    Anything that is not as it should be comes out as the exception that it was, or as an
    AssertionError about the message.
    """
    here, beside = folder / "case", folder / "beside.txt"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    beside.write_text("must stay as it is")
    kind, path = damaged(part, here, random.Random(f"{part} {seed} {number}"))
    outcome = "accepted"
    try:
        PARTS[part][1](path)
    except KscnError as error:
        one_sentence(error)
        assert part == "runs" or str(here) in str(error), f"does not name the file: {error}"
        outcome = "refused"
    assert beside.read_text() == "must stay as it is"
    assert {entry.name for entry in folder.iterdir()} == {"case", "beside.txt"}
    return kind, outcome


def one_sentence(error: KscnError) -> None:
    assert "\n" not in str(error).strip(), f"more than one line: {str(error)!r}"
    assert len(str(error)) < 2000, f"{len(str(error))} letters: {str(error)[:200]!r}"


def batch(part: str, seed: int, numbers: range, folder: str) -> dict[str, Any]:
    """What came of some cases, in this process."""
    outcomes: Counter[str] = Counter()
    failures, slowest = [], 0.0
    for number in numbers:
        faulthandler.dump_traceback_later(SECONDS_PER_CASE, exit=True)
        began = time.perf_counter()
        try:
            outcome = run_case(part, seed, number, Path(folder) / "cases")[1]
        except Exception as error:
            outcome = "failed"
            failures.append({"case": number, "what": f"{type(error).__name__}: {error}"[:300]})
        slowest = max(slowest, time.perf_counter() - began)
        outcomes[outcome] += 1
    faulthandler.cancel_dump_traceback_later()
    return {"outcomes": outcomes, "failures": failures, "slowest": slowest}


def process(part: str, folder: str) -> ProcessPoolExecutor:
    """A process with a limit on its memory; what a case breaks, breaks there."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, spawn, initializer=warm_up, initargs=(part, folder))


def warm_up(part: str, folder: str) -> None:
    """Load libraries and fill caches before anything is measured, and limit the memory."""
    warnings.simplefilter("ignore")
    os.environ["KSCN_MAX_BYTES"] = str(KSCN_MAX_BYTES)
    tempfile.tempdir = folder
    for number in range(-30, 0):
        with suppress(Exception):
            run_case(part, 0, number, Path(folder) / "cases")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MORE_MEMORY, size + MORE_MEMORY))


def fuzz(part: str, seed: int, count: int) -> dict[str, Any]:
    """All cases, batch by batch."""
    outcomes: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    slowest, began = 0.0, time.monotonic()
    queue = [range(n, min(n + BATCH, count)) for n in range(0, count, BATCH)]
    with tempfile.TemporaryDirectory(prefix="kscn-fuzz-") as folder:
        pool = process(part, folder)
        while queue:
            numbers = queue.pop(0)
            try:
                done = pool.submit(batch, part, seed, numbers, folder).result()
            except BrokenProcessPool:  # a crash of a library, or faulthandler's answer to a hang
                pool = process(part, folder)
                if len(numbers) > 1:  # find out which case it was
                    queue = [range(n, n + 1) for n in numbers] + queue
                    continue
                fault = {"case": numbers[0], "what": "the process died or hung"}
                done = {"outcomes": {"failed": 1}, "failures": [fault], "slowest": 0.0}
            outcomes.update(done["outcomes"])
            failures += done["failures"]
            slowest = max(slowest, done["slowest"])
            minutes = round((time.monotonic() - began) / 60, 1)
            told = f"{outcomes.total()} cases, {len(failures)} failures, {minutes} minutes"
            print(f"{part}: {told}", flush=True)
        pool.shutdown()
    return {
        "cases": outcomes.total(),
        **{outcome: outcomes[outcome] for outcome in ("accepted", "refused", "failed")},
        "failures": failures[:100],
        "slowest_seconds": round(slowest, 3),
        "minutes": minutes,
    }


def main(arguments: list[str] | None = None) -> int:
    """Fuzz one part and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=[*PARTS, "requests"])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this one, which shows its traceback")
    parser.add_argument("--dry", action="store_true", help="write nothing to results/")
    given = parser.parse_args(arguments)
    if given.part == "requests":
        import over_http

        figures = over_http.fuzz(given.seed, given.count)
    elif given.case is not None:
        folder = Path(tempfile.mkdtemp(prefix="kscn-fuzz-"))
        print(f"the file stays in {folder}")
        print(*run_case(given.part, given.seed, given.case, folder))
        return 0
    else:
        figures = fuzz(given.part, given.seed, given.count)
    print(json.dumps(figures, indent=1))
    if not given.dry:
        config = {"seed": given.seed, "max_bytes": KSCN_MAX_BYTES, "seconds": SECONDS_PER_CASE}
        record.write("robustness", config, figures, entry=f"fuzz {given.part}")
    return int(bool(figures["failures"]))


if __name__ == "__main__":
    sys.exit(main())
