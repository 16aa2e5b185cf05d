"""`--device` of the commands, and models that go from one device to another."""

import fits
import numpy as np
import pytest
from click.testing import CliRunner

from kscn.cli import cli


def kscn(*args):
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "x.npy"
    np.save(path, fits.planes())
    return path


@pytest.fixture(scope="module")
def run(data, simgpu):
    """A run of `kscn fit` on the simulated device."""
    path = data.parent / "run"
    options = ("--subspace-dim", 2, "--n-init", 1, "--seed", 0, "--device", simgpu)
    done = kscn("fit", data, "-k", 3, "--method", "k-subspaces", "-o", path, *options)
    assert done.exit_code == 0, done.output
    return path


def test_no_file_of_a_run_names_the_device(run, simgpu):
    texts = [path.read_text(errors="replace") for path in run.rglob("*") if path.is_file()]
    assert texts and not any(simgpu in text for text in texts)


def test_predict_on_either_device(run, data, simgpu):
    for device in ("cpu", simgpu):
        done = kscn("predict", run, data, "-o", run.parent / f"{device}.csv", "--device", device)
        assert done.exit_code == 0, done.output
    on_cpu, on_device = (run.parent / f"{name}.csv" for name in ("cpu", simgpu))
    assert on_cpu.read_text() == on_device.read_text()


@pytest.mark.parametrize("command", ["fit", "predict", "serve"])
def test_a_device_that_is_not_there_is_refused_in_a_sentence(command, run, data):
    arguments = {
        "fit": (data, "-k", 3, "-o", run.parent / "other"),
        "predict": (run, data, "-o", run.parent / "labels.csv"),
        "serve": (run,),
    }[command]
    done = kscn(command, *arguments, "--device", "abacus")
    assert done.exit_code != 0
    assert "device='abacus' cannot be used here" in str(done.exception) + done.output
