"""The course of a fit as series to draw, from the records of history.jsonl."""

from collections.abc import Mapping, Sequence
from typing import Any

from kscn.report.charts import Series, value_text

Record = Mapping[str, Any]

# What a record may measure, in the order of the page: field, title, unit.
_MEASURES = (
    ("reconstruction", "Reconstruction error per sample", ""),
    ("subspace", "Subspace loss per sample", ""),
    ("objective", "Sum of squared distances to the subspaces", ""),
    ("relative", "Energy left outside the subspaces", "%"),
    ("changed", "Samples that changed cluster", "%"),
    ("angle", "Largest turn of a subspace", "°"),
)
# What a record of a stage is called; the rest is called by its counter.
_STAGES = {"start": "start", "pretrain": "pretraining", "fit": ""}
# Stages that are drawn together. The start has its own curves: its subspaces are in another space.
_TOGETHER = (("start",), ("pretrain", "fit"))
_COUNTERS = ("epoch", "iteration")
# A longer history is thinned: a chart has no more pixels than this.
_MOST = 300
# What is larger, or no number, cannot be drawn beside others.
_LARGEST = 1e100


def series(history: Sequence[Record]) -> list[Series]:
    """One series per measure that was recorded at least twice: of the start, then of the fit."""
    made = [_series(history, stages, measure) for stages in _TOGETHER for measure in _MEASURES]
    return [one for one in made if one is not None]


def _series(
    history: Sequence[Record], stages: tuple[str, ...], measure: tuple[str, str, str]
) -> Series | None:
    field, title, unit = measure
    points = [
        (record["stage"], _step(record), float(record[field]))
        for record in history
        if record.get("stage") in stages and _is_number(record.get(field))
    ]
    points = points[:: -(-len(points) // _MOST) or 1]
    if len(points) < 2:
        return None
    drawn, steps, values = zip(*points, strict=True)
    begins = drawn.index("fit") if "fit" in drawn else 0
    if stages == ("start",):
        title = f"Start: {title[0].lower()}{title[1:]}"
    return Series(title, unit, steps, values, begins or None)


def table(history: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """The same numbers as a table: header, and a row per iteration or epoch of every stage."""
    records = [record for record in history if record.get("stage") in _STAGES]
    records = records[:: -(-len(records) // _MOST) or 1]
    measures = [m for m in _MEASURES if any(_is_number(record.get(m[0])) for record in records)]
    rows = []
    for record in records:
        cells = [
            value_text(record[field], unit) if _is_number(record.get(field)) else ""
            for field, _, unit in measures
        ]
        rows.append([_step(record), *cells])
    return ["", *(title for _, title, _ in measures)], rows


def _step(record: Record) -> str:
    counter = next((name for name in _COUNTERS if name in record), "epoch")
    prefix = _STAGES[record["stage"]] or counter
    return f"{prefix} {record.get(counter, '')}".strip()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _LARGEST
