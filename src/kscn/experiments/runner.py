"""Measures the paper's tables: one file per run, so that nothing finished is ever done twice.

A run is one method with one preset and one seed on one data set. Its file appears when it has
finished, whole or not at all; a run whose file is there with the settings that would be used now
is not repeated. The summaries and tables are made of these files only. Labels of the data reach
the scoring of a finished fit and nothing before it.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kscn.errors import DataError, InputError
from kscn.estimators import presets
from kscn.experiments import environment, methods
from kscn.experiments.tables import SCORES, Table

RUNS = "reproduce"  # the directory of the runs, inside of that of the summaries

# Called as (data set name) -> kscn.data.Dataset.
Loader = Callable[[str], Any]
Callback = Callable[[Any, dict[str, Any]], object]


@dataclass(frozen=True)
class Cell:
    """One run to be made: a method with a preset and a seed on a data set."""

    dataset: str
    method: str
    preset: str | None
    seed: int
    clusters: int

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return "_".join([_joined(self.dataset, self.method, self.preset), f"seed{self.seed}"])


@dataclass(frozen=True)
class Outcome:
    """A finished run as its file has it.

    `fresh` tells whether it ran just now; `changed` names the settings in which an older file
    differed, which is why it was replaced.
    """

    record: dict[str, Any]
    fresh: bool
    changed: tuple[str, ...] = ()


class Reproduction:
    """The runs that some tables need, and what came of them.

    Parameters
    ----------
    tables : sequence of Table
        What to measure.
    chosen : sequence of str
        Methods; empty for every method of each table that is available.
    preset : str
        For the methods that have presets.
    n_seeds : int
        Seeds 0 to n_seeds - 1.
    out : Path
        Directory of the summaries; the runs go into a directory inside of it.
    load : callable
        Opens a data set by name.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        chosen: Sequence[str],
        preset: str,
        n_seeds: int,
        out: Path,
        load: Loader,
    ) -> None:
        available = methods.names()
        for method in chosen:
            if method not in available:
                raise InputError(
                    f"the method {method!r} is not available; give one of {', '.join(available)}."
                )
        self.tables = tuple(tables)
        self.preset = preset
        self.seeds = range(n_seeds)
        self.out = out
        self._chosen = tuple(dict.fromkeys(chosen))
        self._available = set(available)
        self._load = load
        self._loaded: tuple[str, Any] | None = None
        self._records: dict[Cell, dict[str, Any]] = {}
        if any(cell.preset is not None for cell in self.cells()):
            presets.read(preset)  # a faulty preset is refused at once, not by every run

    def methods(self, table: Table) -> list[str]:
        """The methods to run for a table."""
        return [m for m in self._chosen or table.methods if m in self._available]

    def missing(self, table: Table) -> list[str]:
        """The methods of a table that would be run if they were available."""
        return [m for m in (() if self._chosen else table.methods) if m not in self._available]

    def cells(self) -> list[Cell]:
        """Every run, once, in the order in which summaries become complete."""
        cells = (
            cell
            for table in self.tables
            for method in self.methods(table)
            for dataset in _datasets(table, method)
            for cell in self._cells(table, method, dataset)
        )
        return list(dict.fromkeys(cells))

    def run(self, cell: Cell, callbacks: Sequence[Callback] = ()) -> Outcome:
        """The outcome of a cell: read if it is there with the same settings, else measured now.

        Raises
        ------
        DataError
            When the file of the run is there but damaged.
        """
        path = self.path(cell)
        check_writable(path)  # before the work, not after it
        dataset = self._open(cell.dataset)
        model = self._model(cell, dataset, callbacks)
        config = self._config(cell, dataset, model)
        old = read_record(path) if path.exists() else None
        if old is not None and old["config"] == config:
            self._records[cell] = old
            return Outcome(old, fresh=False)
        record = {"config": config, "seed": cell.seed, **measure(model, dataset)}
        write_json(path, record)
        self._records[cell] = record
        return Outcome(record, True, () if old is None else _differences(old["config"], config))

    def path(self, cell: Cell) -> Path:
        """The file of a run."""
        return self.out / RUNS / f"{cell.name}.json"

    def summarise(self, table: Table) -> dict[str, dict[str, Any]]:
        """Write and return the summary of every method of a table of which all runs went."""
        summaries = {}
        for method in self.methods(table):
            cells = {name: self._cells(table, method, name) for name in _datasets(table, method)}
            if all(cell in self._records for part in cells.values() for cell in part):
                summary = self._summary(table, method, cells)
                write_json(self.summary_path(summary), summary)
                summaries[method] = summary
        return summaries

    def summary_path(self, summary: dict[str, Any]) -> Path:
        """The file of a summary."""
        name = _joined(summary["table"], summary["method"], summary["preset"])
        return self.out / f"{name}.json"

    def _summary(self, table: Table, method: str, cells: dict[str, list[Cell]]) -> dict[str, Any]:
        return {
            "table": table.name,
            "title": table.title,
            "method": method,
            "preset": self._preset_of(method),
            "command": self._command(table, method),
            "datasets": {
                name: {
                    **_statistics([self._records[cell] for cell in part]),
                    "paper": table.rows[name].get(method),
                }
                for name, part in cells.items()
            },
        }

    def _cells(self, table: Table, method: str, dataset: str) -> list[Cell]:
        preset = self._preset_of(method)
        return [Cell(dataset, method, preset, seed, table.clusters) for seed in self.seeds]

    def _preset_of(self, method: str) -> str | None:
        return presets.title(self.preset) if methods.has_presets(method) else None

    def _open(self, name: str) -> Any:
        if self._loaded is None or self._loaded[0] != name:
            self._loaded = name, self._load(name)
        return self._loaded[1]

    def _model(self, cell: Cell, dataset: Any, callbacks: Sequence[Callback]) -> Any:
        return methods.configured(
            cell.method,
            cell.clusters,
            preset=self.preset if cell.preset is not None else None,
            dataset=cell.dataset,
            shape=dataset.samples.shape,
            random_state=cell.seed,
            callbacks=tuple(callbacks),
        )

    def _config(self, cell: Cell, dataset: Any, model: Any) -> dict[str, Any]:
        config = {
            "dataset": cell.dataset,
            "samples": len(dataset.samples),
            "method": cell.method,
            "preset": cell.preset,
            "parameters": methods.settings(model),
        }
        # As it will be read back, so that a tuple or a float's digits make no difference.
        read_back: dict[str, Any] = json.loads(json.dumps(config))
        return read_back

    def _command(self, table: Table, method: str) -> str:
        words = ["kscn reproduce", table.name, "--method", method, "--seeds", str(len(self.seeds))]
        if methods.has_presets(method):
            words += ["--preset", self.preset]
        return " ".join(words)


def measure(model: Any, dataset: Any) -> dict[str, Any]:
    """Fit a model to the samples of a data set, then score it by the labels."""
    import numpy as np

    from kscn import metrics

    about = environment.describe()
    environment.reset_peak_memory()
    began = time.perf_counter()
    model.fit(dataset.samples)
    seconds = time.perf_counter() - began
    peak = environment.peak_memory_mb()
    found = np.asarray(model.labels_)
    return {
        "scores": metrics.scores(dataset.labels, found),
        "seconds": seconds,
        "sizes": np.bincount(found, minlength=model.n_clusters).tolist(),
        "objective": _number(getattr(model, "inertia_", None)),
        "iterations": _number(getattr(model, "n_iter_", None)),
        "peak_memory_mb": peak,
        **about,
    }


def read_record(path: Path) -> dict[str, Any]:
    """A run from its file, or one sentence on what is wrong with it."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError("it is no table")
        missing = {"config", "seed", "scores", "seconds"} - set(record)
        if missing or not set(SCORES) <= set(record["scores"]):
            raise ValueError(f"{', '.join(sorted(missing)) or 'a score'} is missing")
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path} is damaged ({reason}); delete it to have that run made again."
        ) from None
    return record


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file that appears under its name when it is complete, or not at all."""
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        with part.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


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


def _datasets(table: Table, method: str) -> list[str]:
    """The data sets on which a method is measured: those where the paper has it, if any."""
    named = [dataset for dataset, rows in table.rows.items() if method in rows]
    return named or list(table.rows)


def _statistics(records: list[dict[str, Any]]) -> dict[str, Any]:
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


def _differences(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, ...]:
    """Names of the settings that differ."""
    flat = [{**config, **config.get("parameters", {})} for config in (old, new)]
    for config in flat:
        config.pop("parameters", None)
    names = sorted(set(flat[0]) | set(flat[1]))
    return tuple(name for name in names if flat[0].get(name) != flat[1].get(name))


def _joined(*words: str | None) -> str:
    return "_".join(word for word in words if word is not None)


def _number(value: Any) -> Any:
    """A numpy scalar as a plain number."""
    return value.item() if hasattr(value, "item") else value
