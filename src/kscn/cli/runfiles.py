"""The files of a run directory as they are read: checked here once, and by nobody after that.

A run directory may be damaged or come from a stranger. Every function takes a path and raises
`ModelFileError` with one sentence that names it; what they return has the types and sizes that the
commands count on.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kscn.errors import ModelFileError, reason

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Far above what any honest run writes; a larger file is not read to its end.
_CONFIG_BYTES, _HISTORY_BYTES = 2**20, 2**28
_SAMPLE_NUMBERS = 2**26  # numbers in one sample
_DEPTH = 20  # of tables and lists in each other
_DOTS = 2000
_LONGEST_FIT = 1e10  # seconds
_LARGEST_VALUE = 1e39  # of a pixel: those of images are float32 at most

AGAIN = "run `kscn fit` again."

T = TypeVar("T")


def read_config(path: Path) -> dict[str, Any]:
    """config.toml."""
    return _read(path, _CONFIG_BYTES, _config, AGAIN)


def read_history(path: Path, n_samples: int) -> list[dict[str, Any]]:
    """history.jsonl of a finished run on so many samples; its last line is the result."""
    return _read(path, _HISTORY_BYTES, lambda text: _history(text, n_samples), AGAIN)


def read_entries(path: Path, required: set[str], allowed: set[str]) -> list[str]:
    """The list of what a run consists of, which waits to be moved to its place."""

    def entries(text: str) -> list[str]:
        names = json.loads(text)
        _require(isinstance(names, list) and set(map(str, names)) <= allowed, "no list of files")
        _require(required <= set(names), "a file is missing in it")
        return list(names)

    return _read(path, _CONFIG_BYTES, entries, "delete it, and the run counts as unfinished.")


def _read(path: Path, limit: int, parse: Callable[[str], T], advice: str) -> T:
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
        _require(len(content) <= limit, f"more than {limit:,} bytes")
        return parse(content.decode("utf-8"))
    except RecursionError:
        fault = "too deeply nested"
    except (OSError, ValueError) as error:
        fault = reason(error)
    raise ModelFileError(f"{path} is damaged ({fault}); {advice}")


def _config(text: str) -> dict[str, Any]:
    # The time for a key of many parts, a.a.a.a, grows with the square of their number.
    _require(text.count(".") <= _DOTS, "too many dots")
    config = tomllib.loads(text)
    for section in ("run", "data", "parameters"):
        _require(isinstance(config.get(section), dict), f"{section} missing")
    _require(_depth(config) <= _DEPTH, "too deeply nested")
    run, data = config["run"], config["data"]
    for table, name in ((run, "method"), (data, "source"), (data, "name")):
        _require(isinstance(table.get(name), str), f"{name} is missing or no text")
    for name in ("kscn", "created", "preset"):
        _require(isinstance(run.get(name, ""), str), f"{name} is no text")
    _require(isinstance(run.setdefault("model", True), bool), "model is neither true nor false")
    _require(_is_count(data.get("samples"), 1), "samples is missing or no number of them")
    shape = data.get("shape")
    _require(
        isinstance(shape, list)
        and 1 <= len(shape) <= 3
        and all(_is_count(side, 1) for side in shape)
        and math.prod(shape) <= _SAMPLE_NUMBERS,
        "shape is missing or not that of a sample",
    )
    if "preparation" in data:
        data["preparation"] = _preparation(data["preparation"], shape)
    encoder = config.get("encoder", {"name": "", "sha256": ""})
    _require(
        isinstance(encoder, dict)
        and all(isinstance(encoder.get(name), str) for name in ("name", "sha256")),
        "encoder is no table with name and sha256",
    )
    _require(isinstance(data.get("skip_broken", False), bool), "skip_broken is not true or false")
    _require(_is_count(data.get("left_out", 0)), "left_out is no number of files")
    return config


def _preparation(found: Any, shape: list[int]) -> dict[str, Any]:
    """How images were brought to the shape of a sample: the fields of `Preparation`."""
    _require(isinstance(found, dict) and isinstance(found.get("grey"), bool), "no preparation")
    size, values = found.get("size"), found.get("values")
    _require(shape == ([size] * 2 if found["grey"] else [3, size, size]), "another size than shape")
    _require(
        values is None
        or (
            isinstance(values, list)
            and len(values) == 2
            and all(map(_is_number, values))
            and -_LARGEST_VALUE < values[0] < values[1] < _LARGEST_VALUE  # nor NaN
        ),
        "values are no range",
    )
    return {"size": size, "grey": found["grey"], "values": values and tuple(values)}


def _history(text: str, n_samples: int) -> list[dict[str, Any]]:
    records = [json.loads(line, parse_int=_integer) for line in text.splitlines()]
    _require(bool(records), "it is empty")
    for record in records:
        _require(isinstance(record, dict), "a line is no record")
        _require(isinstance(record.get("stage", ""), str), "a stage is no text")
    _check_result(records[-1], n_samples)
    return records


def _check_result(result: Mapping[str, Any], n_samples: int) -> None:
    names = {"objective", "iterations", "seconds", "seed", "sizes", "dims", "scores"}
    missing = sorted(names - set(result))
    _require(not missing, f"{', '.join(missing)} missing")
    sizes, dims, scores = result["sizes"], result["dims"], result["scores"]
    _require(
        _is_counts(sizes) and 1 <= len(sizes) <= n_samples and sum(sizes) == n_samples,
        f"sizes are not those of clusters of {n_samples:,} samples",
    )
    _require(_is_counts(dims) and len(dims) in (0, len(sizes)), "dims are not one per cluster")
    _require(
        _is_number(result["seconds"]) and 0 <= result["seconds"] < _LONGEST_FIT,
        "seconds are no time",
    )
    objective, iterations, seed = result["objective"], result["iterations"], result["seed"]
    _require(objective is None or _is_number(objective), "objective is no number")
    _require(iterations is None or _is_count(iterations), "iterations are no number of them")
    _require(seed is None or _is_count(seed), "seed is no number")
    _require(isinstance(result.get("unit", ""), str), "unit is no text")
    if result.get("chosen") is not None:
        _check_chosen(result["chosen"])
    if scores is not None:
        _require(isinstance(scores, dict), "scores are no table")
        named = (scores.get(name) for name in ("acc", "nmi", "ari"))
        _require(all(map(_is_number, named)), "scores are no numbers")


def _check_chosen(choice: Any) -> None:
    """What `kscn.chosen` puts into words."""
    _require(isinstance(choice, dict), "chosen is no table")
    _require(isinstance(choice.get("tried"), list), "tried is no list")
    rival = choice.get("rival")
    for entry in (choice, *choice["tried"], *([] if rival is None else [rival])):
        _require(
            isinstance(entry, dict)
            and all(isinstance(entry.get(name), str) for name in ("method", "space"))
            and _is_number(entry.get("consistency"))
            and 0 <= entry["consistency"] <= 1,
            "what was chosen or tried is no clustering",
        )
    _require(
        all(_is_count(choice.get(name), 1) for name in ("candidates", "spaces"))
        and isinstance(choice.get("refined"), bool)
        and "rival" in choice,
        "how it was chosen is not said",
    )


def _integer(digits: str) -> int:
    _require(len(digits) < 20, "an integer is too large")
    return int(digits)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


def _depth(value: Any) -> int:
    """How deep tables and lists are in each other, counted to a little above what is allowed."""
    level, depth = [value], 0
    while level and depth <= _DEPTH:
        depth += 1
        inner = (
            v.values() if isinstance(v, dict) else v if isinstance(v, list) else () for v in level
        )
        level = [item for items in inner for item in items]
    return depth


def _require(fine: bool, fault: str) -> None:
    if not fine:
        raise ValueError(fault)
