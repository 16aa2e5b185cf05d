"""Start processes the way users do: by torchrun."""

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def torchrun():
    """torchrun(2, "script.py", ...) or torchrun(2, "-m", "kscn", ...) -> finished process."""

    def run(processes, *args, wait=True):
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
        if not wait:
            return process
        process.output, process.errors = process.communicate(timeout=600)
        return process

    return run
