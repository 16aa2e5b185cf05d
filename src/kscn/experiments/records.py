"""Finished runs as files: written whole or not at all, read with care, compared, averaged."""

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kscn.atomicfile import atomic_file
from kscn.errors import DataError, InputError
from kscn.experiments.tables import SCORES

RUNS = "reproduce"  # the directory of the runs, inside of that of the summaries
_ABSENT = object()


def read_record(path: Path) -> dict[str, Any]:
    """A run from its file, or one sentence on what is wrong with it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        _check(record)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path} is damaged ({reason}); delete it to have that run made again."
        ) from None
    return dict(record)


def _check(record: Any) -> None:
    """ValueError about the first thing that no run writes."""
    _require(isinstance(record, dict), "it is no table")
    missing = {"config", "seed", "scores", "seconds"} - set(record)
    _require(not missing, f"{', '.join(sorted(missing))} missing")
    config, scores = record["config"], record["scores"]
    _require(isinstance(config, dict), "config is no table")
    _require(isinstance(config.get("parameters", {}), dict), "parameters are no table")
    _require(isinstance(config.get("method"), str), "the method is no name")
    _require(isinstance(config.get("preset"), str | None), "the preset is no name")
    _require(type(record["seed"]) is int, "the seed is no integer")
    _require(isinstance(scores, dict), "scores are no table")
    for name in SCORES:
        _require(_is_number(scores.get(name)), f"{name} is no number")
    _require(_is_number(record["seconds"]) and record["seconds"] >= 0, "seconds are no time")
    for name in ("peak_memory_mb", "busy_elsewhere"):
        value = record.get(name)
        _require(value is None or _is_number(value), f"{name} is no number")
    _require(isinstance(record.get("time"), str | None), "time is no text")


def _require(fine: bool, fault: str) -> None:
    if not fine:
        raise ValueError(fault)


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 1e100  # which no NaN is either


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
    """Names of the settings in which two configs differ.

    Parameters
    ----------
    old, new : mapping
        Configs of runs.
    defaults : mapping
        What the method's class takes for each parameter by itself. A config that was written
        before a parameter existed has no word of it, and was run with what is the default now.
    """
    before, after = ({**defaults, **_flat(config)} for config in (old, new))
    names = sorted(set(before) | set(after))
    return tuple(n for n in names if before.get(n, _ABSENT) != after.get(n, _ABSENT))


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in config.items() if name != "parameters"}
    return {**rest, **config.get("parameters", {})}


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
