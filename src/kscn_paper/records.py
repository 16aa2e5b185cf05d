"""Finished runs as files: written whole or not at all, read with care, compared, averaged."""

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kscn.atomicfile import atomic_file
from kscn.checked import TEXT, Test, check, number
from kscn.errors import DataError, InputError, reason
from kscn_paper.tables import SCORES

RUNS = "reproduce"  # the directory of the runs, inside of that of the summaries


# A run as `runner.measure` has it; figures are limited so that they can be averaged.
_FIGURE = number(-1e100, 1e100)
_RECORD = {
    "config": {"method": TEXT, "preset?": TEXT, "parameters?": {}},
    "seed": Test("an integer", lambda value: type(value) is int),
    "scores": dict.fromkeys(SCORES, _FIGURE),
    "seconds": number(0, 1e100),
    "peak_memory_mb?": _FIGURE,
    "busy_elsewhere?": _FIGURE,
    "time?": TEXT,
}


def read_record(path: Path) -> dict[str, Any]:
    """A run from its file, or one sentence on what is wrong with it."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        check(record, _RECORD, "")
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is damaged ({reason(error)}); delete it to have that run made again."
        ) from None
    return record


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file that appears under its name when it is complete, or not at all."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file that appears under its name when it is complete, or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8", "replace"))


def check_writable(path: Path) -> None:
    """Make the directory of a file and see that files can be made in it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write to {path.parent}: {error.strerror}; choose another directory."
        ) from error


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[str, ...]:
    """Names of the settings in which the configs of two runs differ.

    A config that was written before a parameter existed has no word of it, and was run with what is
    the default now.
    """
    before, after = (
        {**defaults, **config, **config.get("parameters", {}), "parameters": None}
        for config in (old, new)
    )
    absent = object()
    names = sorted({*before, *after})
    return tuple(n for n in names if before.get(n, absent) != after.get(n, absent))


def averages(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds, and what each seed gave."""
    figures: dict[str, Any] = {"seeds": [record["seed"] for record in records]}
    series = {name: [record["scores"][name] for record in records] for name in SCORES}
    series["seconds"] = [record["seconds"] for record in records]
    for name, values in series.items():
        figures[name] = {
            "mean": statistics.fmean(values),
            "std": statistics.pstdev(values),
            "per_seed": values,
        }
    peaks = [record["peak_memory_mb"] for record in records if record.get("peak_memory_mb")]
    figures["peak_memory_mb"] = max(peaks, default=None)
    for name in ("objective", "commit", "time"):
        figures[name] = [record.get(name) for record in records]
    figures["config"] = records[0]["config"]
    figures["versions"] = records[0].get("versions")
    return figures
