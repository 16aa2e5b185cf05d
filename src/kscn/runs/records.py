"""config.toml and history.jsonl of a run: written here, and checked here when they are read.

A run directory may be damaged or come from a stranger. Functions that read raise `ModelFileError`
with one sentence that names the file; what they return has the types and sizes that the commands
count on.
"""

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kscn.atomicfile import atomic_file
from kscn.constraints import FLAG, NUMBER, TEXT, Integer, Number, Test, check_table, require
from kscn.errors import ModelFileError, reason

# Far above what any honest run writes; a larger file is not read to its end.
_CONFIG_BYTES, _HISTORY_BYTES = 2**20, 2**28
_SAMPLE_NUMBERS = 2**26  # numbers in one sample
_DOTS = 2000

AGAIN = "run `kscn fit` again."
DONE = "done"  # the stage of the last line of a history

T = TypeVar("T")


_COUNT, _POSITIVE = Integer(0), Integer(1)
_PIXEL = Number(-1e39, 1e39)  # those of images are float32 at most


def _is_shape(value: Any) -> bool:
    sides = isinstance(value, list) and 1 <= len(value) <= 3 and all(map(_POSITIVE.allows, value))
    return sides and math.prod(value) <= _SAMPLE_NUMBERS


def _is_range(value: Any) -> bool:
    pair = isinstance(value, list) and len(value) == 2 and all(map(_PIXEL.allows, value))
    return pair and value[0] < value[1]


_CONFIG = {
    "run": {"method": TEXT, "kscn?": TEXT, "created?": TEXT, "preset?": TEXT},
    "data": {
        "source": TEXT,
        "name": TEXT,
        "samples": _POSITIVE,
        "shape": Test("the shape of a sample", _is_shape),
        "preparation?": {
            "grey": FLAG,
            "size": _POSITIVE,
            "values?": Test("a range of values", _is_range),
        },
        "skip_broken?": FLAG,
        "left_out?": _COUNT,
    },
    "parameters": {},
    "encoder?": {"name": TEXT, "sha256": TEXT, "preprocessing": {}},
}
_CLUSTERING = {"method": TEXT, "space": TEXT, "consistency": Number(0, 1, "both")}
_CHOSEN = {  # what `kscn.report.words` puts into words
    **_CLUSTERING,
    "candidates": _POSITIVE,
    "spaces": _POSITIVE,
    "tried": [_CLUSTERING],
    "rival?": _CLUSTERING,
    "refined": FLAG,
}
_RESULT = {
    "sizes": [_COUNT],
    "dims": [_COUNT],
    "seconds": Number(0, 1e10),
    "objective?": NUMBER,
    "iterations?": _COUNT,
    "unit?": TEXT,
    "seed?": _COUNT,
    "scores?": {"acc": NUMBER, "nmi": NUMBER, "ari": NUMBER},
    "chosen?": _CHOSEN,
}


# Config ------------------------------------------------------------------------------------------


def write_config(path: Path, config: Mapping[str, Mapping[str, Any]]) -> None:
    """Write config.toml, one table per key."""
    import tomli_w

    with atomic_file(path) as file:
        file.write(tomli_w.dumps(plain(config)).encode("utf-8", "replace"))


def plain(value: Any) -> Any:
    """What TOML can hold of a value: the kind of what it does not know, and nothing for None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str) else type(value).__name__


def read_config(path: Path) -> dict[str, Any]:
    """Read config.toml."""
    return _read(path, _CONFIG_BYTES, _config)


def _config(text: str) -> dict[str, Any]:
    # The time for a key of many parts, a.a.a.a, grows with the square of their number.
    require(text.count(".") <= _DOTS, "too many dots")
    config = tomllib.loads(text)
    check_table(config, _CONFIG)
    return config


# History -----------------------------------------------------------------------------------------


def records_before(path: Path, again: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a history so far has before a record that is told again; nothing if it is damaged."""

    def place(record: Mapping[str, Any]) -> list[Any]:
        return [record.get(name) for name in ("stage", "epoch", "iteration", "round")]

    try:
        records = [json.loads(line) for line in path.read_bytes().splitlines()]
        places = [place(record) for record in records]
    except (OSError, ValueError, AttributeError):
        return []
    return records[: places.index(place(again))] if place(again) in places else records


def lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Lines of history.jsonl, one per record."""
    return b"".join(json.dumps(dict(r), default=_jsonable).encode() + b"\n" for r in records)


def _jsonable(value: Any) -> Any:
    """What JSON takes in place of numpy's and torch's scalars and arrays."""
    return value.tolist() if hasattr(value, "tolist") else float(value)


def is_finished(path: Path) -> bool:
    """Whether the last line of history.jsonl is the result of a fit, whatever else is in it."""
    try:
        with path.open("rb") as file:
            *_, last, end = file.read(_HISTORY_BYTES + 1).split(b"\n")
        return end == b"" and json.loads(last).get("stage") == DONE
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def read_history(path: Path, n_samples: int) -> list[dict[str, Any]]:
    """Read history.jsonl of a finished run on so many samples; its last line is the result."""
    return _read(path, _HISTORY_BYTES, lambda text: _history(text, n_samples))


def _history(text: str, n_samples: int) -> list[dict[str, Any]]:
    records = [json.loads(line, parse_int=_parse_integer) for line in text.splitlines()]
    check_table(records, [{"stage?": TEXT}], "a line")
    result = records[-1]
    check_table(result, _RESULT)
    require(
        1 <= len(result["sizes"]) <= n_samples and sum(result["sizes"]) == n_samples,
        f"sizes are not those of clusters of {n_samples:,} samples",
    )
    require(len(result["dims"]) in (0, len(result["sizes"])), "dims are not one per cluster")
    if result.get("chosen") is not None:
        result["chosen"].setdefault("rival", None)
    absent = dict.fromkeys(("objective", "iterations", "seed", "scores"))
    return [*records[:-1], absent | result]


def _parse_integer(digits: str) -> int:
    require(len(digits) < 20, "an integer is too large")
    return int(digits)


def _read(path: Path, limit: int, parse: Callable[[str], T]) -> T:
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
        require(len(content) <= limit, f"more than {limit:,} bytes")
        return parse(content.decode("utf-8"))
    except RecursionError:
        fault = "too deeply nested"
    except (OSError, ValueError) as error:
        fault = reason(error)
    raise ModelFileError(f"{path} is damaged ({fault}); {AGAIN}")
