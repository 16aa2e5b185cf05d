"""Damaged and hostile files against readers, model loader and run directories: results/fuzz.json.

    python benchmarks/fuzz.py --minutes 10            all parts, 10 minutes each
    python benchmarks/fuzz.py readers --minutes 10    one part: results/fuzz_readers.json
    python benchmarks/fuzz.py readers --case 1234     one case again, with the traceback

Small valid files of every format are mutated: bits flipped, ends cut, pieces spliced, numbers in
headers replaced by extreme ones, before and after packing. Each must be read or refused by a
`KscnError` in one sentence, within bounded time and memory. Cases run in a process of their own
with a limit on its memory, so that a crash of a library is found too, and depend on nothing but
their number and the seed.
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import gzip
import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kscn.data import load
from kscn.errors import KscnError

CASES_PER_PROCESS = 2000
SECONDS_PER_CASE = 60
KSCN_MAX_BYTES = 64 * 2**20
MOST_GROWTH = 4 * KSCN_MAX_BYTES  # of resident memory in a case
ADDRESS_SPACE = 4 * 2**30  # beyond what the process has before the first case
READ_BYTES = 16 * 2**20  # of samples, when a file was accepted

X = np.arange(60, dtype=np.float32).reshape(12, 5) / 7
IMAGES = (np.arange(6 * 8 * 8) * 37 % 251).astype(np.uint8).reshape(6, 8, 8)
EXTREMES = [0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53,
            2**62, 2**63 - 1, 2**63, 2**64 - 1]  # fmt: skip


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(members: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def csv(separator: str = ",", names: str = "a,b,c,d,e,kind", labels: str = "abc") -> bytes:
    rows = [[f"{v:.6g}" for v in row] for row in X]
    for i, row in enumerate(rows):
        row += [labels[i % len(labels)]] if labels else []
    lines = [separator.join(row) for row in [names.split(",") if names else [], *rows]]
    return "\n".join([*lines, ""]).encode()


def wide_parquet(names: list[str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    stream = io.BytesIO()
    table = pa.table([X[:, i % X.shape[1]] for i in range(len(names))], names=names)
    pyarrow.parquet.write_table(table, stream)
    return stream.getvalue()


def parquet(packing: str, lists: bool) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    stream = io.BytesIO()
    words = [f"class {i % 3}" for i in range(len(X))]
    if lists:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
        table = pa.table({"x": vectors, "y": list(range(len(X)))})
    else:
        table = pa.table({**{f"c{i}": X[:, i] for i in range(5)}, "label": words})
    pyarrow.parquet.write_table(table, stream, row_group_size=5, compression=packing)
    return stream.getvalue()


def h5(packed: bool) -> bytes:
    import h5py

    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        options = {"chunks": (4, 5), "compression": "gzip"} if packed else {}
        file.create_dataset("X", data=X, **options)
        file["y"] = [f"class {i % 3}" for i in range(len(X))] if packed else list(range(len(X)))
    return stream.getvalue()


def image(kind: str, colour: bool) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    pixels = np.stack([IMAGES[0]] * 3, axis=-1) if colour else IMAGES[0]
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def turned(kind: str) -> bytes:
    """An image that is not square, with an EXIF entry that changes its sides."""
    from PIL import Image

    stream, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(IMAGES[0][:5]).save(stream, kind, exif=exif)
    return stream.getvalue()


def deep(kind: str, dtype: str) -> bytes:
    """A grey image of more than 8 bits, which is resized before it is read."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray((IMAGES[0] * 16.0).astype(dtype)).save(stream, kind)
    return stream.getvalue()


# Names within the case's folder, and the bytes of a valid file of that kind.
READERS: dict[str, Callable[[], bytes]] = {
    "x.npy": lambda: npy(X),
    "x.npz": lambda: npz({"X.npy": npy(X), "y.npy": npy(np.arange(len(X)))}),
    "stored.npz": lambda: npz({"X.npy": npy(X)}, zipfile.ZIP_STORED),
    "x-idx3-ubyte": lambda: idx(IMAGES),
    "x-idx3-ubyte.gz": lambda: gzip.compress(idx(IMAGES), mtime=0),
    "labels.npz": lambda: npz({"X.npy": npy(X), "y.npy": npy(np.arange(12, dtype=np.uint64))}),
    "x.csv": csv,
    "label.csv": lambda: csv(";", "a,b,c,d,e,label", "0123456789"),
    "bare.csv": lambda: csv("\t", "", ""),
    "spaces.csv": lambda: csv(" ", ""),
    "wide.parquet": lambda: wide_parquet([f"c{i:03}" for i in range(400)]),
    "x.parquet": lambda: parquet("snappy", False),
    "packed.parquet": lambda: parquet("gzip", False),
    "lists.parquet": lambda: parquet("none", True),
    "x.h5": lambda: h5(False),
    "packed.h5": lambda: h5(True),
    "shards/b.npy": lambda: npy(X),
    "parts/b.parquet": lambda: parquet("snappy", False),
    **{
        f"images/b{'c' * colour}.{kind}": lambda kind=kind, colour=colour: image(kind, colour)
        for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm")
        for colour in (False, True)
    },
    **{f"turned/b.{kind}": lambda kind=kind: turned(kind) for kind in ("png", "jpeg", "tiff")},
    "deep/b.png": lambda: deep("png", "uint16"),
    "deep/b.tiff": lambda: deep("tiff", "float32"),
    "deep/bi.tiff": lambda: deep("tiff", "int32"),
}
# What packs an inner file, so that a mutation within is not caught by the checksum of the outer.
PACKERS: dict[str, tuple[Callable[[], bytes], Callable[[bytes], bytes]]] = {
    "x.npz": (lambda: npy(X), lambda inner: npz({"X.npy": inner})),
    "stored.npz": (lambda: npy(X), lambda inner: npz({"X.npy": inner}, zipfile.ZIP_STORED)),
    "x-idx3-ubyte.gz": (lambda: idx(IMAGES), lambda inner: gzip.compress(inner, mtime=0)),
}


@cache
def valid(name: str) -> bytes:
    return READERS[name]()


def mutated(content: bytes, rng: random.Random, more: list[Callable] | None = None) -> bytes:
    """One to four random changes of a file, some of which only its kind knows."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        rng.choice(MUTATIONS + (more or []))(data, rng)
    return bytes(data)


def flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 2, 8]) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def remove(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.choice([1, 4, 16, 64])]


def splice(data: bytearray, rng: random.Random) -> None:
    start, place = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    piece = data[start : start + rng.choice([4, 16, 64, 256])] * rng.choice([1, 1, 1, 500])
    if rng.random() < 0.5:
        data[place : place + len(piece)] = piece
    else:
        data[place:place] = piece


def binary_number(data: bytearray, rng: random.Random) -> None:
    size = rng.choice([1, 2, 4, 8])
    # Most headers are at the front or, in zip and Parquet, at the end.
    reach = rng.choice([32, 256, len(data)])
    place = rng.randrange(min(reach, len(data)) + 1)
    place = place if rng.random() < 0.6 else max(0, len(data) - place)
    value = (rng.choice(EXTREMES) + rng.choice([0, 0, -1, 1])) % 2 ** (8 * size)
    data[place : place + size] = value.to_bytes(size, rng.choice(["little", "big"]))


def text_number(data: bytearray, rng: random.Random) -> None:
    numbers = list(re.finditer(rb"-?\d+", data))
    if numbers:
        found = rng.choice(numbers)
        value = str(rng.choice([*EXTREMES, -1, 10**30, "9" * 5000, "1e999", "nan", "[" * 3000]))
        data[found.start() : found.end()] = value.encode()


def odd_cell(data: bytearray, rng: random.Random) -> None:
    """A cell of a table that is no plain number; often one of the first two rows."""
    cells = list(re.finditer(rb"[^,;\t\n ]+", data))
    if cells:
        found = rng.choice(cells[: rng.choice([6, 12, len(cells)])])
        odd = ["", "NA", "nan", "-nan", "nan(1)", "?", "1_000", "1,5", "1.2.3", "5%", "word", "y",
               "label", "0", "inf", "0x10", "1e400", " 7 ", "\u0663", "\xa01", '"', '"a b"', "  ",
               '""', "'", "#", "\r", "\n", str(2**63), str(2**53 + 1), "\ufeff"]  # fmt: skip
        data[found.start() : found.end()] = rng.choice(odd).encode()


def odd_shape(data: bytearray, rng: random.Random) -> None:
    """Lengths that Python takes for numbers, in the header of a .npy file."""
    found = re.search(rb"\([\d, ]+\)", data[:200])
    if found:
        shape = rng.choice(
            [b"(True, True)", b"(12, True)", b"(2**62, 0)", b"(0x0c, 5)", b"(12.0,)"]
        )
        data[found.start() : found.end()] = shape.ljust(found.end() - found.start())


# What only some kinds of files know, by the suffix.
SPECIAL: dict[str, list[Callable]] = {".csv": [odd_cell] * 14, ".npy": [odd_shape]}
MUTATIONS = [flip_bits, cut, remove, splice, binary_number, binary_number, text_number]


def write_reader_case(folder: Path, rng: random.Random) -> tuple[str, Path]:
    """A mutated file; returns its kind and what to open."""
    name = rng.choice(list(READERS))
    if name in PACKERS and rng.random() < 0.6:
        inner, pack = PACKERS[name]
        content = pack(mutated(inner(), rng, SPECIAL[".npy"]))
    else:
        content = mutated(valid(name), rng, SPECIAL.get(Path(name).suffix))
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    if path.parent == folder:
        return name, path
    intact = path.with_name(f"{rng.choice('ac')}{path.suffix}")  # a valid neighbour
    intact.write_bytes(valid(name))
    return name, path.parent


def read_everything(path: Path) -> None:
    """What a fit does with a file: all samples in order, some at random."""
    if path.suffix == ".csv":
        compare_readers(path)
    if path.name == "deep":
        path = resized(path)
    samples = load(path).samples
    rows = max(1, 2**20 // max(1, samples.row_bytes))
    for first, _ in samples.batches(min(rows, 4096)):
        if first * samples.row_bytes > READ_BYTES:
            break
    samples.take([len(samples) - 1, 0, len(samples) // 2])


def compare_readers(path: Path) -> None:
    """Whether pyarrow, where it reads a table, and Python give the same, or the same refusal."""
    from kscn.data import tables

    def outcome(smallest: int) -> tuple[str, Any, Any, Any]:
        usual, tables._SMALL_BYTES = tables._SMALL_BYTES, smallest
        try:
            found = load(path)
            return "", np.asarray(found.samples), found.labels, found.label_names
        except KscnError as error:
            return str(error), None, None, None
        finally:
            tables._SMALL_BYTES = usual

    for ours, theirs in zip(outcome(sys.maxsize), outcome(0), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def resized(folder: Path) -> Path:
    """A folder of deep images as one that can be read."""
    from kscn.data.resizing import resize_images

    output = folder.with_name(f"{folder.name} resized")
    resize_images(folder, output, 6)
    return output


@cache
def models() -> Path:
    """A folder with one small model of each kind."""
    from kscn import KSCN, KSCNPlus, KSubspaces

    folder = Path(tempfile.mkdtemp(prefix="kscn-fuzz-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    vectors = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    pictures = np.random.default_rng(0).random((30, 8, 8), dtype=np.float32)
    deep = {"subspace_dim": 2, "pretrain_epochs": 1, "epochs": 1, "random_state": 0}
    dense = {"autoencoder_params": {"hidden": [8], "latent_dim": 5}}
    shallow = {"autoencoder_params": {"channels": [6, 3], "kernels": [3, 3]}}
    plus = {"starts": 2, "random_state": 0}
    for name, model, samples in [
        ("linear", KSubspaces(2, subspace_dim=2, n_init=1, random_state=0), vectors),
        (
            "deep",
            KSCN.from_settings(2, **deep, **shallow, latent="whitened", latent_dim=6),
            pictures,
        ),
        ("dense", KSCN.from_settings(2, **deep, **dense), vectors),
        ("plus vectors", KSCNPlus(2, **plus), vectors),
        ("plus images", KSCNPlus(2, **plus, refine=True, epochs=1), pictures),
    ]:
        model.fit(samples).save(folder / name)
    return folder


def write_model_case(folder: Path, rng: random.Random) -> tuple[str, Path]:
    """A mutated model directory; often with sizes and checksums that fit, to get further in."""
    kind = rng.choice(sorted(entry.name for entry in models().iterdir()))
    path = folder / kind
    shutil.copytree(models() / kind, path)
    tensors, manifest = path / "model.safetensors", path / "manifest.json"
    what = rng.choice(["tensors", "manifest", "values", "both", "arrays"])
    described = json.loads(manifest.read_bytes())
    if what in ("tensors", "both"):
        tensors.write_bytes(mutated(tensors.read_bytes(), rng))
    if what == "arrays":
        change_an_array(tensors, rng)
    if what in ("values", "both") or (what == "arrays" and rng.random() < 0.3):
        for _ in range(rng.choice([1, 1, 2])):
            change_a_value(described, rng)
    if what in ("tensors", "both", "arrays") and rng.random() < 0.9:
        content = tensors.read_bytes()
        described["tensors_bytes"] = len(content)
        described["tensors_sha256"] = hashlib.sha256(content).hexdigest()
    manifest.write_text(json.dumps(described))
    if what == "manifest":
        manifest.write_bytes(mutated(manifest.read_bytes(), rng))
    return f"{kind} {what}", path


# Types of safetensors by their bytes, also those that numpy lacks.
TYPES = {"F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "BOOL": 1, "BF16": 2, "F16": 2, "I16": 2, "F32": 4,
         "I32": 4, "F64": 8, "I64": 8, "C64": 8}  # fmt: skip


def change_an_array(path: Path, rng: random.Random) -> None:
    """Give one array another type or shape in a file that is otherwise valid."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    values = {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}
    name = rng.choice(sorted(header))
    entry = header[name]
    if rng.random() < 0.5:  # the same number of values, or the same bytes, of another type
        entry["dtype"] = rng.choice(list(TYPES))
        size = TYPES[entry["dtype"]] * int(np.prod(entry["shape"]))
        values[name] = (values[name] + bytes(size))[:size]
    else:  # empty, maybe wide, or with a length too many
        entry["shape"] = rng.choice([[0], [0, 2**40], [2**62, 0], [0, 0, 0], [1, *entry["shape"]]])
        size = TYPES[entry["dtype"]] * int(np.prod(entry["shape"], dtype=object))
        values[name] = (values[name] + bytes(min(size, 2**20)))[:size]
    where = 0
    for key, entry in header.items():
        entry["data_offsets"] = [where, where := where + len(values[key])]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(values[k] for k in header))


def change_a_value(tree: Any, rng: random.Random) -> None:
    """Replace, remove or add something at a random place of a JSON document."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(tree[key], (dict, list)) and rng.random() < 0.85:
            tree = tree[key]
            continue
        if rng.random() < 0.1:
            del tree[key]
            return
        strange = [None, True, "", "x" * 10_000, [], {}, [[[]]], -1, 0, 1, 3, 0.5, 1e308, 10**6,
                   2**31, 2**63, 10**30, -(2**63), "../../etc/passwd", "é\n", "x", 14_000,
                   [14_000, 8], [262_144, 8]]  # fmt: skip
        tree[key] = rng.choice(strange)
        return


def open_model(path: Path) -> None:
    from kscn import load_model

    load_model(path)


@cache
def finished_run() -> Path:
    """A run directory, in a folder with its data x.npy."""
    from kscn.cli import cli

    folder = Path(tempfile.mkdtemp(prefix="kscn-fuzz-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32))
    fit = f"fit {folder}/x.npy -k 2 -o {folder}/run --seed 0"
    fit += " --method k-subspaces --subspace-dim 2 --n-init 1"
    with redirect_stdout(io.StringIO()):
        cli.main(fit.split(), standalone_mode=False)
    return folder / "run"


def write_run_case(folder: Path, rng: random.Random) -> tuple[str, Path]:
    """A run directory with one mutated file; some did not finish or were about to be published."""
    path = folder / "run"
    shutil.copytree(finished_run(), path)
    what = rng.choice(
        ["config.toml", "history.jsonl", "labels.csv", "complete", "result", "resume"]
    )
    stage = path / ".unfinished"
    if what in ("complete", "resume"):
        stage.mkdir()
    if what == "complete":
        shutil.copytree(path, stage, dirs_exist_ok=True, ignore=lambda *_: {stage.name})
        entries = json.dumps(["model", "labels.csv", "history.jsonl", "config.toml"])
        (stage / what).write_bytes(mutated(entries.encode(), rng))
    elif what == "result":
        *lines, last = (path / "history.jsonl").read_text().splitlines()
        result = json.loads(last)
        change_a_value(result, rng)
        (path / "history.jsonl").write_text("\n".join([*lines, json.dumps(result)]))
    else:
        file = path / ("config.toml" if what == "resume" else what)
        file.write_bytes(mutated(file.read_bytes(), rng))
        if what == "resume":
            os.replace(file, stage / file.name)
    return what, path


def use_run(path: Path) -> None:
    """What users do with a run: look at it, score it, make its page, or let it go on."""
    from kscn.cli import cli

    truth = path.with_name("y.npy")
    np.save(truth, np.arange(60) % 2)
    resume = (path / ".unfinished" / "config.toml").exists() and not (path / "config.toml").exists()
    uses = (
        [["fit", "--resume", path]]
        if resume
        else [["info", path], ["evaluate", path, "--labels", truth], ["report", path]]
    )
    for use in uses:
        with redirect_stdout(io.StringIO()):
            cli.main([str(word) for word in use], standalone_mode=False)


PARTS: dict[str, tuple[Callable[[Path, random.Random], tuple[str, Path]], Callable]] = {
    "readers": (write_reader_case, read_everything),
    "model": (write_model_case, open_model),
    "runs": (write_run_case, use_run),
}


def run_case(part: str, seed: int, number: int, folder: Path) -> tuple[str, str]:
    """Run one case in a fresh sub-folder; returns its kind and "accepted" or "refused".

    Anything that is not as it should be comes out as the exception that it was, or as an
    AssertionError about the message.
    """
    write, use = PARTS[part]
    here = folder / "case"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    kind, path = write(here, random.Random(f"{part} {seed} {number}"))
    try:
        use(path)
    except KscnError as error:
        message = str(error)
        assert "\n" not in message, f"more than one line: {message!r}"
        assert len(message) < 2000, f"{len(message)} letters: {message[:200]!r}"
        assert part == "runs" or str(here) in message, f"does not name the file: {message!r}"
        return kind, "refused"
    return kind, "accepted"


def status(field: str) -> int:
    """VmRSS, VmHWM or VmSize of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def child(part: str, seed: int, first: int, until: float, folder: Path) -> None:
    """Run cases from number `first`, and keep progress.json up to date after each."""
    import warnings

    warnings.simplefilter("ignore")
    os.environ["KSCN_MAX_BYTES"] = str(KSCN_MAX_BYTES)
    counts: Counter[str] = Counter()
    progress: dict[str, Any] = {"next": first, "counts": counts, "failures": []}
    progress |= {"slowest_seconds": 0.0, "most_growth_bytes": 0}
    for number in range(200):  # warm up: libraries are loaded and caches filled outside the measure
        try:
            run_case(part, -1, number, folder)
        except Exception:
            continue
    limit = status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in range(first, first + CASES_PER_PROCESS):
        if time.time() > until:
            break
        (folder / "progress.json").write_text(json.dumps(progress))
        faulthandler.dump_traceback_later(SECONDS_PER_CASE, exit=True)
        Path("/proc/self/clear_refs").write_text("5")
        before, began = status("VmRSS"), time.perf_counter()
        try:
            kind, outcome = run_case(part, seed, number, folder)
        except Exception as error:
            kind, outcome = "", "failed"
            what = f"{type(error).__name__}: {error}"[:300]
            progress["failures"].append({"case": number, "what": what})
        seconds, growth = time.perf_counter() - began, status("VmHWM") - before
        if growth > MOST_GROWTH:
            progress["failures"].append({"case": number, "what": f"{growth} bytes of memory"})
        progress["slowest_seconds"] = max(progress["slowest_seconds"], round(seconds, 3))
        progress["most_growth_bytes"] = max(progress["most_growth_bytes"], growth)
        counts[f"{kind} {outcome}".strip()] += 1
        progress["next"] = number + 1
    faulthandler.cancel_dump_traceback_later()
    (folder / "progress.json").write_text(json.dumps(progress))


def fuzz(part: str, seed: int, minutes: float) -> dict[str, Any]:
    """Cases in one process after the other until the time is over."""
    until = time.time() + 60 * minutes
    counts: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    slowest, growth, number = 0.0, 0, 0
    with tempfile.TemporaryDirectory(prefix="kscn-fuzz-") as name:
        progress_file = Path(name) / "progress.json"
        while time.time() < until:
            done = subprocess.run(
                [sys.executable, __file__, part, "--seed", str(seed), "--child", str(number),
                 str(until), name],
                capture_output=True,
                text=True,
                check=False,
            )  # fmt: skip
            if not progress_file.exists():
                raise RuntimeError(f"the first case never began: {done.stderr[-2000:]}")
            progress = json.loads(progress_file.read_text())
            counts.update(progress["counts"])
            failures += progress["failures"]
            slowest = max(slowest, progress["slowest_seconds"])
            growth = max(growth, progress["most_growth_bytes"])
            number = progress["next"]
            if done.returncode:  # a crash of a library, or faulthandler's answer to a hang
                what = f"process ended with {done.returncode}: {done.stderr[-600:]}"
                failures.append({"case": number, "what": what})
                counts["failed"] += 1
                number += 1
            print(f"{part}: {sum(counts.values())} cases, {len(failures)} failures", flush=True)
    outcomes = {o: sum(v for k, v in counts.items() if k.endswith(o))
                for o in ("accepted", "refused", "failed")}  # fmt: skip
    return {
        "cases": sum(counts.values()),
        **outcomes,
        "failures": failures[:100],
        "slowest_seconds": slowest,
        "most_growth_mb": round(growth / 2**20, 1),
        "by_kind": dict(sorted(counts.items())),
    }


def main() -> None:
    """Fuzz the chosen parts and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.part, given.seed, int(given.child[0]), float(given.child[1]),
              Path(given.child[2]))  # fmt: skip
    elif given.case is not None:
        folder = Path(tempfile.mkdtemp(prefix="kscn-fuzz-"))
        print(f"the file stays in {folder}")
        os.environ["KSCN_MAX_BYTES"] = str(KSCN_MAX_BYTES)
        print(*run_case(given.part, given.seed, given.case, folder))
    else:
        import record

        parts = [given.part] if given.part else list(PARTS)
        figures = {part: fuzz(part, given.seed, given.minutes) for part in parts}
        print(json.dumps(figures, indent=1))
        name = f"fuzz_{given.part}" if given.part else "fuzz"
        config = {"parts": parts, "seed": given.seed, "minutes": given.minutes}
        config |= {"max_bytes": KSCN_MAX_BYTES, "seconds_per_case": SECONDS_PER_CASE}
        record.write(name, config, figures)


if __name__ == "__main__":
    main()
