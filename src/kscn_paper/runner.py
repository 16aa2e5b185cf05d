"""Measures the paper's tables: one file per run, so that nothing finished is ever done twice.

A run is one method with one preset and one seed on one data set. Its file appears when it has
finished, whole or not at all; a run whose file is there with the settings that would be used now
is not repeated. The summaries and tables are made of these files only. Labels of the data reach
the scoring of a finished fit and nothing before it.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from kscn.errors import InputError
from kscn.estimators import presets
from kscn_paper import environment, methods
from kscn_paper.records import (
    RUNS,
    averages,
    check_writable,
    differences,
    read_record,
    write_json,
)
from kscn_paper.tables import Table

# Called as (data set name or path) -> kscn.data.Dataset.
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
    source: str | None = None  # the file of a data set that is not in the catalogue
    pretrain_on: str | None = None  # other data, for the network on whose features a method works
    settings: str = "{}"  # the parameters that the table asks for, as JSON

    @property
    def kind(self) -> tuple[str, str, str | None]:
        """What it shares with the runs of other seeds."""
        return self.dataset, self.method, self.preset

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return "_".join([_joined(*self.kind), f"seed{self.seed}"])


@dataclass(frozen=True)
class Outcome:
    """A finished run as its file has it."""

    record: dict[str, Any]
    fresh: bool  # it ran just now
    changed: tuple[str, ...] = ()  # settings in which an older file differed, and was replaced


class Reproduction:
    """The runs that some tables need, and what came of them.

    `chosen` are the methods to run, by default all of each table that are available; `out` is the
    directory of the summaries, with that of the runs inside; `load` opens a data set by its name.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        chosen: Sequence[str],
        preset: str,
        seeds: Sequence[int],
        out: Path,
        load: Loader,
    ) -> None:
        for method in chosen:
            methods.check_available(method)
        self.tables = tuple(tables)
        self.preset = preset
        self.seeds = tuple(dict.fromkeys(seeds))
        self.out = out
        self._chosen = tuple(dict.fromkeys(chosen))
        self._available = set(methods.names())
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
        parts = (
            self._cells(table, method) for table in self.tables for method in self.methods(table)
        )
        return list(dict.fromkeys(chain.from_iterable(parts)))

    def _cells(self, table: Table, method: str) -> list[Cell]:
        """The runs of a method, on the data sets where the paper has it or else on all."""
        named = [dataset for dataset, rows in table.rows.items() if method in rows]
        takes = "pretrain_on" in methods.accepted(method)
        return [
            Cell(
                dataset,
                method,
                presets.title(self.preset) if methods.has_presets(method) else None,
                seed,
                table.clusters,
                table.sources.get(dataset),
                table.pretraining.get(dataset) if takes else None,
                json.dumps(table.settings.get(dataset, {}).get(method, {}), sort_keys=True),
            )
            for dataset in named or table.rows
            for seed in self.seeds
        ]

    def run(self, cell: Cell, callbacks: Sequence[Callback] = ()) -> Outcome:
        """The outcome of a cell: read if it is there with the same settings, else measured now.

        A file that is there but damaged raises DataError.
        """
        path = self.path(cell)
        check_writable(path)  # before the work, not after it
        dataset = self._open(cell)
        model = self._model(cell, dataset, callbacks)
        config = self._config(cell, dataset, model)
        changed: tuple[str, ...] = ()
        if path.exists():
            old = read_record(path)
            changed = differences(old["config"], config, methods.defaults(model))
            if not changed:
                self._records[cell] = old
                return Outcome(old, fresh=False)
        record = {"config": config, "seed": cell.seed, **measure(model, dataset)}
        write_json(path, record)
        self._records[cell] = record
        return Outcome(record, True, changed)

    def seconds_left(self, cells: Sequence[Cell]) -> tuple[float, int]:
        """The time that some cells will take, by what finished runs of their kind took.

        What is on disk already takes none. Also returned is of how many runs nothing is known.
        """
        took: dict[tuple[str, str, str | None], list[float]] = {}
        for cell, record in self._records.items():
            took.setdefault(cell.kind, []).append(record["seconds"])
        left = [took.get(cell.kind) for cell in cells if not self.path(cell).exists()]
        return sum(fmean(seconds) for seconds in left if seconds), left.count(None)

    def path(self, cell: Cell) -> Path:
        """The file of a run."""
        return self.out / RUNS / f"{cell.name}.json"

    def summarise(self, table: Table) -> dict[str, dict[str, Any]]:
        """Write and return the summary of every method of a table of which all runs went."""
        summaries = {}
        for method in self.methods(table):
            cells = self._cells(table, method)
            if all(cell in self._records for cell in cells):
                summary = self._summary(table, cells)
                write_json(self.summary_path(summary), summary)
                summaries[method] = summary
        return summaries

    def summary_path(self, summary: dict[str, Any]) -> Path:
        """The file of a summary."""
        name = _joined(summary["table"], summary["method"], summary["preset"])
        return self.out / f"{name}.json"

    def _summary(self, table: Table, cells: Sequence[Cell]) -> dict[str, Any]:
        """The figures of a method, of which these are all runs, and the command for them."""
        method, preset = cells[0].method, cells[0].preset
        words = ["kscn reproduce", table.name, "--method", method]
        if self.seeds == tuple(range(len(self.seeds))):
            words += ["--seeds", str(len(self.seeds))]
        else:
            words += [f"--seed {seed}" for seed in self.seeds]
        if preset is not None:
            words += ["--preset", self.preset]
        records: dict[str, list[dict[str, Any]]] = {}
        for cell in cells:
            records.setdefault(cell.dataset, []).append(self._records[cell])
        return {
            "table": table.name,
            "title": table.title,
            "method": method,
            "preset": preset,
            "command": " ".join(words),
            "datasets": {
                name: {**averages(part), "paper": table.rows[name].get(method)}
                for name, part in records.items()
            },
        }

    def _open(self, cell: Cell) -> Any:
        name = cell.source or cell.dataset
        if self._loaded is None or self._loaded[0] != name:
            loaded = self._load(name)
            if loaded.labels is None:
                raise InputError(
                    f"{name} has no labels to score by; a table needs data with labels."
                )
            self._loaded = name, loaded
        return self._loaded[1]

    def _model(self, cell: Cell, dataset: Any, callbacks: Sequence[Callback]) -> Any:
        other = {"pretrain_on": self._load(cell.pretrain_on).samples} if cell.pretrain_on else {}
        model = methods.configured(
            cell.method,
            cell.clusters,
            preset=self.preset if cell.preset is not None else None,
            dataset=cell.dataset if cell.source is None else None,
            shape=dataset.samples.shape,
            n_samples=len(dataset.samples),
            random_state=cell.seed,
            callbacks=tuple(callbacks),
            **other,
            **json.loads(cell.settings),
        )
        if cell.preset is None:
            return model
        from kscn_paper.sharing import PretrainedOnce

        return PretrainedOnce.from_settings(**model.get_params())

    def _config(self, cell: Cell, dataset: Any, model: Any) -> dict[str, Any]:
        config: dict[str, Any] = {
            "dataset": cell.dataset,
            "samples": len(dataset.samples),
            "method": cell.method,
            "preset": cell.preset,
            "parameters": methods.settings(model),
        }
        if cell.source is not None:
            config["source"] = cell.source
        if cell.pretrain_on is not None:
            config["parameters"]["pretrain_on"] = cell.pretrain_on
        # As it will be read back, so that a tuple or a float's digits make no difference.
        read_back: dict[str, Any] = json.loads(json.dumps(config))
        return read_back


def measure(model: Any, dataset: Any) -> dict[str, Any]:
    """Fit a model to the samples of a data set, then score it by the labels."""
    import numpy as np

    from kscn import metrics

    about = environment.describe()
    environment.reset_peak_memory()
    elsewhere = environment.Elsewhere()
    began = time.perf_counter()
    model.fit(dataset.samples)
    seconds = time.perf_counter() - began
    peak, busy = environment.peak_memory_mb(), elsewhere.busy()
    found = np.asarray(model.labels_)
    return {
        "scores": metrics.scores(dataset.labels, found),
        "seconds": seconds,
        "sizes": np.bincount(found, minlength=model.n_clusters).tolist(),
        "objective": _number(getattr(model, "inertia_", None)),
        "iterations": _number(getattr(model, "n_iter_", None)),
        "peak_memory_mb": peak,
        "busy_elsewhere": busy,
        # Its time is without pretraining if an earlier run had kept the network.
        "pretrained_in_cache": any(
            record.get("stage") == "pretrained" for record in getattr(model, "history_", ())
        ),
        **about,
    }


def _joined(*words: str | None) -> str:
    return "_".join(word for word in words if word is not None)


def _number(value: Any) -> Any:
    """A numpy scalar as a plain number."""
    return value.item() if hasattr(value, "item") else value
