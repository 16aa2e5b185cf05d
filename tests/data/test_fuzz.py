"""Some hundred mutated files of every kind: read, or refused in one sentence of our own.

`benchmarks/robustness/fuzz.py` runs the same cases without end, under limits of time and memory.
"""

import importlib.util
from pathlib import Path

import pytest

for package in ("PIL", "pyarrow", "h5py"):
    pytest.importorskip(package)

_PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "robustness" / "fuzz.py"
_SPEC = importlib.util.spec_from_file_location("kscn_fuzz", _PATH)
fuzz = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fuzz)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("part", "cases"), [("files", 300), ("models", 80)])
def test_mutated_files_are_read_or_refused(tmp_path, monkeypatch, part, cases):
    monkeypatch.setenv("KSCN_MAX_BYTES", str(fuzz.KSCN_MAX_BYTES))
    outcomes = [fuzz.run_case(part, 0, number, tmp_path) for number in range(cases)]
    found = {outcome for _, outcome in outcomes}
    assert found == {"accepted", "refused"}
    assert len({kind for kind, _ in outcomes}) >= 8


def test_the_files_that_are_damaged_are_valid():
    for path in fuzz.originals("files").iterdir():
        fuzz.read_everything(path)
