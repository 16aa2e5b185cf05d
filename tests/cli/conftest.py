"""Small data on disk, a run made from it, and ways to call the command."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from kscn.cli import cli

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

LINEAR = ("--method", "k-subspaces", "--subspace-dim", 2)
SIZES = [(40, 60), (60, 40), (33, 33), (20, 90), (64, 48), (50, 50)]


@pytest.fixture(scope="session")
def planes():
    """Three planes in eight dimensions, 120 samples: (samples, labels)."""
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.standard_normal((3, 8, 2)))[0]
    labels = np.repeat([0, 1, 2], [60, 40, 20])
    samples = np.einsum("nij,nj->ni", bases[labels], rng.standard_normal((120, 2)))
    return (samples + 0.01 * rng.standard_normal(samples.shape)).astype(np.float32), labels


@pytest.fixture(scope="session")
def files(planes, tmp_path_factory):
    """A directory with the planes as x.npy, their labels as y.npy, and both as xy.npz."""
    directory = tmp_path_factory.mktemp("files")
    samples, labels = planes
    np.save(directory / "x.npy", samples)
    np.save(directory / "y.npy", labels)
    np.savez(directory / "xy.npz", x=samples, y=labels)
    return directory


@pytest.fixture(scope="session")
def kscn():
    """Call the command in this process: kscn("info", run) -> result with exit_code and output."""

    def call(*args, **extra):
        return CliRunner().invoke(cli, [str(arg) for arg in args], **extra)

    return call


@pytest.fixture(scope="session")
def finished(files, kscn, tmp_path_factory):
    """A finished run on the planes; do not write to it."""
    run = tmp_path_factory.mktemp("runs") / "run"
    result = kscn("fit", files / "x.npy", "-k", 3, "-o", run, *LINEAR, "--seed", 1)
    assert result.exit_code == 0, result.output
    return run


@pytest.fixture(scope="session")
def paint():
    """Write a picture of one of two kinds: a bright middle, or bright borders."""

    def write(path, number, shape):
        height, width = shape
        rows, columns = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
        far = np.maximum(abs(rows) * height, abs(columns) * width) / min(height, width)
        bright = (far < 0.5) == bool(number % 2)
        pixels = np.where(bright[..., None], (230, 200, 20 * (number % 5)), (20, 30, 60 + number))
        Image.fromarray(pixels.astype(np.uint8)).save(path)

    return write


@pytest.fixture(scope="session")
def photos(paint, tmp_path_factory):
    """Thirteen images of many sizes, formats and modes, two broken files and a text."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    folder.mkdir()
    for number in range(12):
        kind = ("png", "jpg", "webp", "tiff")[number % 4]
        paint(folder / f"{number:02}.{kind}", number, SIZES[number % len(SIZES)])
    paint(folder / "glass, clear.png", 12, (30, 31))
    Image.open(folder / "glass, clear.png").convert("RGBA").save(folder / "glass, clear.png")
    (folder / "broken.jpg").write_bytes((folder / "01.jpg").read_bytes()[:300])
    (folder / "empty.png").write_bytes(b"")
    (folder / "notes.txt").write_text("holidays")
    return folder


@pytest.fixture(scope="session")
def sized(photos, kscn, tmp_path_factory):
    """A run on them, brought to 16 x 16 pixels; do not write to it."""
    run = tmp_path_factory.mktemp("runs") / "run"
    fit = ("fit", photos, "-k", 2, "-o", run, "--size", 16, "--skip-broken", *LINEAR)
    result = kscn(*fit, "--seed", 0)
    assert result.exit_code == 0, result.output
    assert "left out 2 of 15 images, which cannot be read: broken.jpg, empty.png" in result.stderr
    assert "left out   2 files that cannot be read, see left-out.csv" in result.stdout
    return run


@pytest.fixture
def start():
    """Start a command in a process of its own, and end it with the test."""
    running = []

    def begin(*args, before=""):
        running.append(warm.Started(warm.COMMAND, args, before))
        return running[-1]

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def cold_start():
    """Start `python -m kscn ...`, or code, where it matters what is imported when."""
    running = []

    def begin(*args, code=None):
        command = [sys.executable, *(("-c", code) if code else ("-m", "kscn")), *map(str, args)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def one_sentence():
    """Check that a call failed with exit code 2 and one line on stderr, and return that line."""

    def check(result):
        assert result.exit_code == 2, result.output
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("kscn: ")
        return lines[0]

    return check
