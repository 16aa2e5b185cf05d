"""The examples run as their readers would run them, on fewer samples."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `import warm`

import warm

EXAMPLES = Path(__file__).parents[2] / "examples"
# What to call each example with, and what it must say.
CALLS = {
    "digits.py": (
        ["--samples", 80, "--pretrain-epochs", 1, "--epochs", 1],
        "kSCN-S, loaded, on new digits",
    ),
    "image_folder.py": (["--images", 60, "-k", 3], "wrote copies of 60 files"),
    "parquet_embeddings.py": (["--samples", 600], "600 rows in clusters of"),
}


# `python -m kscn` of an example, without another process and its imports.
IN_PROCESS = """
import subprocess, sys
from kscn.cli import cli
others = subprocess.run

def run(command, **how):
    if command[:3] != [sys.executable, "-m", "kscn"]:
        return others(command, **how)
    assert how == {"check": True}
    cli.main(command[3:], standalone_mode=False)

subprocess.run = run
"""


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_runs(name, tmp_path):
    args, words = CALLS[name]
    process = warm.Started(EXAMPLES / name, args, before=IN_PROCESS, cwd=tmp_path)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert words in output
    assert list(tmp_path.iterdir()) == []  # an example leaves nothing behind
