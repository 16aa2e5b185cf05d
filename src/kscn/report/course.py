"""The course of a fit as series to draw, from the records of history.jsonl."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kscn.report.charts import Series

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
# How a stage counts its records, and what one of them is called.
_STAGES = {"pretrain": "pretraining", "fit": ""}
_COUNTERS = ("epoch", "iteration")
# A longer history is thinned: a chart has no more pixels than this.
_MOST = 300


def series(history: Sequence[Record]) -> list[Series]:
    """One series per measure that was recorded at least twice, over pretraining and fit."""
    made = []
    for field, title, unit in _MEASURES:
        told = [
            (record["stage"], _step(record), float(record[field]))
            for record in history
            if record.get("stage") in _STAGES and _is_number(record.get(field))
        ]
        told = told[:: -(-len(told) // _MOST) or 1]
        if len(told) < 2:
            continue
        stages, steps, values = zip(*told, strict=True)
        begins = stages.index("fit") if "fit" in stages else 0
        made.append(Series(title, unit, steps, values, begins or None))
    return made


def table(history: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """The same numbers as a table: header, and a row per epoch of either stage."""
    records = [record for record in history if record.get("stage") in _STAGES]
    records = records[:: -(-len(records) // _MOST) or 1]
    measures = [m for m in _MEASURES if any(_is_number(record.get(m[0])) for record in records)]
    rows = []
    for record in records:
        cells = [
            Series(title, unit, (), ()).told(record[field]) if _is_number(record.get(field)) else ""
            for field, title, unit in measures
        ]
        rows.append([_step(record), *cells])
    return ["", *(title for _, title, _ in measures)], rows


def _step(record: Record) -> str:
    counter = next((name for name in _COUNTERS if name in record), "epoch")
    prefix = _STAGES[record["stage"]] or counter
    return f"{prefix} {record.get(counter, '')}".strip()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
