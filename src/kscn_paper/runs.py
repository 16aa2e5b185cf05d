"""Runs: one method with one seed on one data set, each a line of results/paper/runs.jsonl.

A line is added when a run has finished. A run that is there with the same method, data, preset,
seed and parameters set by hand is not made again. Labels of the data reach the scores of a finished
fit and nothing before it.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kscn.constraints import TEXT, Number, Test, check_table
from kscn.errors import DataError, InputError, reason
from kscn_paper import environment, methods
from kscn_paper.tables import SCORES

FILE = "runs.jsonl"
_RECORD = {
    "config": {"dataset": TEXT, "method": TEXT, "preset?": TEXT, "parameters": {}, "set?": {}},
    "seed": Test("an integer", lambda value: type(value) is int),
    "scores": dict.fromkeys(SCORES, Number(-1, 1, "both")),
    "time": TEXT,
    "commit?": TEXT,
    "from?": TEXT,
}


def read(path: Path) -> list[dict[str, Any]]:
    """All runs of a file; a last line that is not finished is left out.

    Raises
    ------
    DataError
        When a line is damaged.
    """
    content = path.read_bytes() if path.exists() else b""
    found = []
    for place, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            run = json.loads(line)
            check_table(run, _RECORD)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"line {place} of {path} is damaged ({reason(error)}); delete it to have that run "
                "made again."
            ) from None
        found.append(run)
    return found


def add(path: Path, run: Mapping[str, Any]) -> None:
    """Add a run as the last line of a file, in place of a line that a kill has left unfinished."""
    line = json.dumps(run).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"cannot write to {path} ({reason(error)}).") from None


def run(
    path: Path,
    method: str,
    dataset: str,
    seed: int,
    *,
    preset: str = "tuned",
    given: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], bool]:
    """The run of a method, and whether it was made just now or was in the file already.

    Parameters
    ----------
    path : Path
        The file of the runs.
    method, dataset : str
        One of `methods.NAMES`, and a name of the catalogue of data.
    seed : int
        Of everything random.
    preset : {"tuned", "paper"}, default="tuned"
        Of kscn-s and kscn-g.
    given : mapping, optional
        Parameters that differ from those of the data set; such a run is in no table.
    """
    import numpy as np

    from kscn import data

    given = dict(given or {})
    own = preset if method in methods.WITH_PRESETS else None
    key = (method, dataset, seed, own, given)
    for known in read(path):
        config = known["config"]
        same = config["method"], config["dataset"], known["seed"], config.get("preset")
        if (*same, config.get("set", {})) == key:
            return known, False
    loaded = data.load(dataset)
    if loaded.labels is None:
        raise InputError(f"{dataset} has no labels to score by.")
    n_clusters = len(np.unique(loaded.labels))
    model = methods.make(
        method, n_clusters, dataset=dataset, preset=preset, random_state=seed, **given
    )
    measured = measure(model, loaded)
    config = {
        "dataset": dataset,
        "samples": len(loaded.samples),
        "method": method,
        "preset": own,
        "parameters": methods.recorded(model, dataset),
    }
    if given:
        config["set"] = given
    record = {"config": config, "seed": seed, **measured}
    add(path, record)
    return record, True


def measure(model: Any, loaded: Any) -> dict[str, Any]:
    """Fit a model to the samples of a data set, then score it by the labels."""
    import numpy as np

    from kscn import metrics

    about = environment.describe()
    environment.reset_peak_memory()
    elsewhere, began = environment.Elsewhere(), time.perf_counter()
    model.fit(loaded.samples)
    seconds = time.perf_counter() - began
    peak, busy = environment.peak_memory_mb(), elsewhere.busy()
    labels = np.asarray(model.labels_)
    objective, iterations = getattr(model, "inertia_", None), getattr(model, "n_iter_", None)
    return {
        "scores": metrics.scores(loaded.labels, labels),
        "seconds": seconds,
        "sizes": np.bincount(labels, minlength=model.n_clusters).tolist(),
        "objective": None if objective is None else float(objective),
        "iterations": None if iterations is None else int(iterations),
        "peak_memory_mb": peak,
        "busy_elsewhere": busy,
        # Its time is without pretraining if an earlier run had kept the network.
        "pretrained_in_cache": any(
            record.get("stage") == "pretrained" for record in getattr(model, "history_", ())
        ),
        **about,
    }
