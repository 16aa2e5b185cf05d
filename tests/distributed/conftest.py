"""Start processes by torchrun: the way users do, or without waiting for imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import torch.distributed.run
import warm


@pytest.fixture(scope="session")
def torchrun():
    """torchrun(2, script, ...) -> finished process; it and its workers are forked."""

    def run(processes, script, *args, wait=True):
        options = ("--standalone", f"--nproc-per-node={processes}", "--start-method=fork")
        process = warm.Started(
            torch.distributed.run.__file__, [*options, "--run-path", script, *args]
        )
        return ended(process) if wait else process

    return run


@pytest.fixture(scope="session")
def cold_torchrun():
    """torchrun(2, "-m", "kscn", ...) -> finished process, as on the command line."""

    def run(processes, *args):
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={processes}", *map(str, args)),
        ]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        return ended(process)

    return run


def ended(process):
    process.output, process.errors = process.communicate(timeout=600)
    return process
