"""The examples run as their readers would run them, on fewer samples."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# What to call each example with, and what it must say.
CALLS = {
    "digits.py": (
        ["--samples", 200, "--pretrain-epochs", 2, "--epochs", 1],
        "kSCN-S, loaded, on new digits",
    ),
    "image_folder.py": (["--images", 60, "-k", 3], "cluster-0: "),
    "parquet_embeddings.py": (["--samples", 600], "600 rows in clusters of"),
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_runs(name, tmp_path):
    args, words = CALLS[name]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, args)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
    assert list(tmp_path.iterdir()) == []  # an example leaves nothing behind
