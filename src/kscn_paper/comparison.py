"""Ours beside the paper's: every finished run of a table that is on disk, and the gap."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kscn.errors import DataError, KscnError
from kscn_paper import beside, methods
from kscn_paper.environment import QUIET
from kscn_paper.records import RUNS, averages, differences, read_record
from kscn_paper.tables import SCORES, Table

# Points of per cent below the paper that still count as reproduced: seeds differ by as much.
WITHIN = 3.0
_OF_A_SEED = {"random_state"}


@dataclass(frozen=True)
class Row:
    """A method, with a preset if it has any: our runs and the paper's figures."""

    method: str
    preset: str | None
    runs: Sequence[dict[str, Any]]  # that differ in nothing but the seed, ordered by it
    paper: dict[str, Any] = field(default_factory=dict)  # scores in per cent
    left_out: int = 0  # runs with other settings than the newest
    remark: str | None = None  # one sentence on our figure

    @property
    def title(self) -> str:
        """The method and its preset."""
        return self.method if self.preset is None else f"{self.method} ({self.preset})"

    @cached_property
    def figures(self) -> dict[str, Any]:
        """Mean and deviation of every score and the time; empty without runs."""
        return averages(self.runs) if self.runs else {}

    @property
    def quiet(self) -> bool:
        """Whether nothing else was going on beside all of the runs, so that their time counts."""
        busy = [run.get("busy_elsewhere") for run in self.runs]
        return bool(busy) and all(cores is not None and cores <= QUIET for cores in busy)

    def ours(self, score: str) -> tuple[float, float] | None:
        """Mean and deviation of a score over the seeds, in per cent."""
        if not self.runs:
            return None
        return 100 * self.figures[score]["mean"], 100 * self.figures[score]["std"]

    def gap(self, score: str) -> float | None:
        """Our mean minus the paper's figure, in points of per cent; None without one of them."""
        ours = self.ours(score)
        if ours is None or score not in self.paper:
            return None
        # Two digits, as the paper has: 84.14 is within 3 of 87.14 however it is represented.
        return round(ours[0] - self.paper[score], 2) + 0.0  # no minus before a zero

    def grade(self, score: str) -> str | None:
        """`above` the paper or level with it, `near` (less than 3 points below) or `below`."""
        gap = self.gap(score)
        if gap is None:
            return None
        return "above" if gap >= 0 else "near" if gap >= -WITHIN else "below"


@dataclass(frozen=True)
class Comparison:
    """One data set of a table: a row per method, the paper's first and in its order."""

    table: Table
    dataset: str
    rows: Sequence[Row]

    @property
    def title(self) -> str:
        """The table's title, and the data set where the table has several."""
        several = len(self.table.rows) > 1
        return f"{self.table.title}: {self.dataset}" if several else self.table.title

    @property
    def timed(self) -> bool:
        """Whether there is a row whose time can be shown."""
        return any(row.quiet for row in self.rows)

    @property
    def published(self) -> list[str]:
        """The scores that the paper gives here."""
        return [s for s in SCORES if any(s in row.paper for row in self.rows)]


def compare(
    table: Table, out: Path, chosen: Sequence[str] = ()
) -> tuple[list[Comparison], list[DataError]]:
    """All that the directory of results `out` knows of a table, data set by data set.

    Methods that were `chosen` are shown even if the table wants no extras. Also returned is what is
    wrong with files of runs that cannot be read, and are not counted.
    """
    comparisons, faults = [], []
    for dataset in table.rows:
        records, broken = _records(table, dataset, out)
        faults += broken
        if table.extras and dataset not in table.sources:
            records = beside.added(records, dataset, table.clusters, out)
        if not table.extras:
            shown = {*table.rows[dataset], *chosen}
            records = [record for record in records if record["config"]["method"] in shown]
        comparisons.append(Comparison(table, dataset, _rows(table, dataset, records)))
    return comparisons, faults


def _records(table: Table, dataset: str, out: Path) -> tuple[list[dict[str, Any]], list[DataError]]:
    found, faults = [], []
    for path in sorted((out / RUNS).glob(f"{dataset}_*.json")):
        try:
            record = read_record(path)
        except DataError as error:
            faults.append(error)
            continue
        config = record["config"]
        if (
            config.get("dataset") == dataset
            and config.get("source") == table.sources.get(dataset)
            and config.get("parameters", {}).get("n_clusters", table.clusters) == table.clusters
        ):
            found.append(record)
    return found, faults


def _rows(table: Table, dataset: str, records: list[dict[str, Any]]) -> list[Row]:
    groups: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for record in records:
        key = record["config"]["method"], record["config"].get("preset")
        groups.setdefault(key, []).append(record)
    paper, known = table.rows[dataset], methods.names()
    remarks = table.remarks.get(dataset, {})
    # The paper's methods as it has them, then the others as `kscn fit` lists them.
    extra = sorted(
        {method for method, _ in groups} - set(paper),
        key=lambda name: (known.index(name) if name in known else len(known), name),
    )
    rows = []
    for method in (*paper, *extra):
        presets = [preset for name, preset in groups if name == method]
        presets.sort(key=lambda preset: (preset != "tuned", preset or ""))
        for preset in presets or [None]:
            group = groups.get((method, preset), [])
            runs = _alike(method, group)
            remark = remarks.get(f"{method} {preset}", remarks.get(method))
            left_out = len(group) - len(runs)
            rows.append(Row(method, preset, runs, paper.get(method, {}), left_out, remark))
    return rows


def _alike(method: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that have the settings of the newest one, by seed."""
    if not records:
        return []
    newest = max(records, key=lambda record: record.get("time") or "")["config"]
    try:
        defaults = methods.defaults(methods.make(method, 2))
    except KscnError:  # a method that is gone; its runs can still be shown
        defaults = {}
    alike = [r for r in records if not {*differences(r["config"], newest, defaults)} - _OF_A_SEED]
    return sorted(alike, key=lambda record: record["seed"])
