"""Small data on disk, a run made from it, and ways to call the command."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kscn.cli import cli

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

LINEAR = ("--method", "k-subspaces", "--subspace-dim", 2)


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
