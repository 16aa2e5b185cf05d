"""Rows that were measured by other scripts than `kscn reproduce`: `best`, methods on features.

Their results are files of the same directory. They become runs like those in it, so that a table
shows them beside the others, each with a note on the file that it is from.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kscn.checked import check
from kscn_paper.methods import BEST
from kscn_paper.tables import SCORES

# Methods on scattering coefficients, by what is done to their principal components.
FEATURES = {
    "components": "k-means on scattering",
    "whitened": "k-means on whitened scattering",
    "whitened, unit norm": "k-means on whitened scattering, unit norm",
    "k-fsc": "k-fsc on whitened scattering",
    "k-fsc, authors": "k-fsc on whitened scattering, settings of its authors",
}

BEFORE = " Measured with the start that came before the present one."


def added(
    records: list[dict[str, Any]], dataset: str, clusters: int, out: Path
) -> list[dict[str, Any]]:
    """The runs of a data set with those that other files of `out` have of it.

    Of `best` there may be runs of several files: the file with the newest of them counts.
    """
    rest = [record for record in records if record["config"]["method"] != BEST]
    own = [record for record in records if record["config"]["method"] == BEST]
    found = [own, *_best(dataset, clusters, out)]
    newest = max(found, key=lambda runs: max((run.get("time") or "" for run in runs), default=""))
    return [*rest, *newest, *_features(dataset, clusters, out)]


def _best(dataset: str, clusters: int, out: Path) -> Iterator[list[dict[str, Any]]]:
    """The runs of `best` in the file of its own and in the panel."""
    name = f"frontier_{dataset}.json"
    found = _read(out / name)
    if found["config"].get("k") == clusters:
        rows = found["figures"].get("seeds", {})
        scored = {seed: row["final"] | {"seconds": row["seconds"]} for seed, row in rows.items()}
        # Records of the present start say what it has chosen.
        before = any("chosen" not in row for row in rows.values())
        yield _runs(BEST, dataset, scored, found, name, BEFORE if before else "")
    found = _read(out / "panel.json")
    part = found["figures"].get("sets", {}).get(dataset, {})
    if part.get("k") == clusters:
        rows = {seed: row["methods"].get("kscn-plus") for seed, row in part["seeds"].items()}
        scored = {seed: row for seed, row in rows.items() if row is not None}
        yield _runs(BEST, dataset, scored, found, "panel.json")


def _features(dataset: str, clusters: int, out: Path) -> Iterator[dict[str, Any]]:
    name = "feature_means.json"
    found = _read(out / name)
    part = found["figures"].get(dataset, {})
    if part.get("k") == clusters:
        for kind, title in FEATURES.items():
            yield from _runs(title, dataset, part.get(kind, {}), found, name)


def _read(path: Path) -> dict[str, Any]:
    """A result of a benchmark; what cannot be read is as if there were nothing in it."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        check(found, {"config": {}, "figures": {}}, "")
    except (OSError, ValueError, RecursionError):
        return {"config": {}, "figures": {}}
    return found


def _runs(
    method: str,
    dataset: str,
    scored: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, Any],
    name: str,
    more: str = "",
) -> list[dict[str, Any]]:
    """Scores by seed, in per cent, as runs."""
    when = found.get("time")
    commits = dict.fromkeys(row.get("commit") or found.get("commit") for row in scored.values())
    told = ", ".join(filter(None, commits)) or "unknown"
    word = "commits" if len(commits) > 1 else "commit"
    note = f"From results/{name} of {str(when)[:10]}, {word} {told}.{more}"
    return [
        {
            "config": {"dataset": dataset, "method": method, "preset": None, "parameters": {}},
            "seed": int(seed),
            "scores": {score: row[score] / 100 for score in SCORES},
            "seconds": row.get("seconds", 0.0),
            "time": when,
            "commit": row.get("commit") or found.get("commit"),
            "from": note,
        }
        for seed, row in scored.items()
    ]
