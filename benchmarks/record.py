"""Write a measured result to results/NAME.json with what is needed to repeat it."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kscn_paper import environment

RESULTS = Path(__file__).resolve().parent.parent / "results"
# Read when a run begins, because the tree may move on while it lasts; "-dirty" if it already had.
COMMIT = environment.commit()


def write(
    name: str, config: dict[str, Any], figures: dict[str, Any], folder: Path = RESULTS
) -> None:
    """Write one result file, complete or not at all."""
    record = {
        "command": " ".join(["python", os.path.relpath(sys.argv[0]), *map(_told, sys.argv[1:])]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": COMMIT,
        "versions": {p: version(p) for p in ("kscn", "torch", "numpy", "scikit-learn")},
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "config": config,
        "figures": figures,
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(record, indent=1) + "\n")
    unfinished.replace(path)
    print(f"wrote {os.path.relpath(path)}")


def figures(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """The figures of an earlier run, or none."""
    path = folder / f"{name}.json"
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def percent(scores: dict[str, float]) -> dict[str, float]:
    """Scores in per cent."""
    return {name: round(100 * value, 2) for name, value in scores.items()}


def resident(field: str) -> float:
    """VmRSS (now) or VmHWM (peak) of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _told(argument: str) -> str:
    """An argument without the folders of this machine."""
    return Path(argument).name if os.path.isabs(argument) else argument
