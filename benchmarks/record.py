"""Write what a benchmark measured to results/NAME.json, with what is needed to repeat it."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kscn_paper import environment

RESULTS = Path(__file__).resolve().parents[1] / "results"
# Read when a run begins, because the tree may change while it lasts; "-dirty" if it already had.
COMMIT = environment.commit()


def write(
    name: str,
    config: dict[str, Any],
    figures: dict[str, Any],
    folder: Path = RESULTS,
    entry: str | None = None,
) -> None:
    """Write a result file, or one entry of a file that several benchmarks share."""
    record: dict[str, Any] = {
        "command": " ".join(["python", os.path.relpath(sys.argv[0]), *map(_named, sys.argv[1:])]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": COMMIT,
        "versions": {p: version(p) for p in ("kscn", "torch", "numpy", "scikit-learn")},
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "config": config,
        "figures": figures,
    }
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry is not None:
        record = _read(path) | {entry: record}
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(dumps(record), encoding="utf-8")
    unfinished.replace(path)
    print(f"wrote {os.path.relpath(path)}")


def figures(name: str, folder: Path = RESULTS, entry: str | None = None) -> dict[str, Any]:
    """The figures of an earlier run, or none."""
    record = _read(folder / f"{name}.json")
    if entry is not None:
        record = record.get(entry, {})
    return dict(record.get("figures", {}))


def dumps(record: dict[str, Any]) -> str:
    """JSON with one line per name; a list of numbers or words stays on its line."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    joined = re.sub(r"\[\n[^\[\]{}]*\]", lambda found: re.sub(r"\s*\n\s*", " ", found[0]), text)
    return joined.replace("[ ", "[").replace(" ]", "]") + "\n"


def percent(scores: dict[str, float]) -> dict[str, float]:
    """Scores in per cent."""
    return {name: round(100 * value, 2) for name, value in scores.items()}


def resident(field: str) -> float:
    """VmRSS (now) or VmHWM (peak) of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _named(argument: str) -> str:
    """An argument without the folders of this machine."""
    return Path(argument).name if os.path.isabs(argument) else argument
