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
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import click
import numpy as np

from kscn import KSCN, KSCNPlus, KSubspaces, load_model
from kscn.cli import cli
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

# The formats and the valid files of each that their test reads.
FORMATS = Path(__file__).parents[2] / "tests" / "data" / "test_formats.py"


# Files of samples ---------------------------------------------------------------------------------


def write_files(folder: Path) -> None:
    """A file of every format, folders of shards, and folders of images of every kind."""
    from PIL import Image

    spec = spec_from_file_location("formats", FORMATS)
    assert spec is not None and spec.loader is not None
    formats = module_from_spec(spec)
    spec.loader.exec_module(formats)
    for name, (content, *_) in formats.FILES.items():
        (folder / name).write_bytes(content)
    for name in ("x.npy", "x.parquet"):
        shards = folder / f"shards{Path(name).suffix}"
        shards.mkdir()
        for number in "ab":
            (shards / f"{number}{name}").write_bytes(formats.FILES[name][0])
    grey = (np.arange(64) * 37 % 251).astype(np.uint8).reshape(8, 8)
    exif = Image.Exif()
    exif[0x0112] = 6  # on its side
    kinds = {"grey": "png jpeg bmp tiff ppm", "colour": "png jpeg gif bmp tiff webp ppm"}
    for name, names in (kinds | {"turned": "png jpeg tiff"}).items():
        (folder / name).mkdir()
        pixels = np.stack([grey] * 3, axis=-1) if name == "colour" else grey
        for kind in names.split():
            options = {"exif": exif} if name == "turned" else {}
            Image.fromarray(pixels).save(folder / name / f"a.{kind}", **options)
    (folder / "deep").mkdir()
    for name in ("a.png", "b.tiff"):
        Image.fromarray((grey * 16.0).astype(np.uint16)).save(folder / "deep" / name)


def packed(content: bytes, rng: random.Random) -> bytes:
    """A packed file, damaged within, so that the checksum of the outer file is right."""
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(mutated(gzip.decompress(content), rng))
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
        for name in old.namelist():
            new.writestr(name, mutated(old.read(name), rng, Path(name).suffix))
    return stream.getvalue()


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
    vectors = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    pictures = np.random.default_rng(0).random((30, 8, 8), dtype=np.float32)
    short = {"subspace_dim": 2, "pretrain_epochs": 1, "epochs": 1}
    KSubspaces(2, subspace_dim=2, n_init=1, random_state=0).fit(vectors).save(folder / "linear")
    KSCN(2, **short, random_state=0).fit(pictures).save(folder / "images")
    KSCN(2, **short, random_state=0).fit(vectors).save(folder / "vectors")
    KSCNPlus(2, random_state=0).fit(vectors).save(folder / "best")


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
    "models": (write_models, load_model),
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
    if how == "within" and file.suffix in (".npz", ".gz"):
        file.write_bytes(packed(content, rng))
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
    with suppress(OSError, ValueError, TypeError, RecursionError):
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
