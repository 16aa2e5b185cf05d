"""What a report says about a run, as plain values that the template lays out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn import metrics
from kscn.data import Dataset
from kscn.errors import InputError
from kscn.report import course, words
from kscn.report.charts import line
from kscn.report.clusters import MEMBERS, Cluster, Illustrator
from kscn.report.map import flatten
from kscn.report.palette import colours
from kscn.report.pictures import Painter, data_uri, is_image, sheet
from kscn.report.spaces import SubspaceSpace, space_of
from kscn.report.survey import Survey, look
from kscn.runs.opened import check_data
from kscn.runtime.rows import sample_rows

# Pictures for the pointer on the map, and pixels in all of them together.
_PICTURES, _PIXELS = 4000, 6_000_000
_HOVER_SIDE = 32
# A table with more rows or columns than this is left out; the command line can print it.
_WIDEST = 60


@dataclass(frozen=True)
class RunFacts:
    """A run as it is on disk."""

    config: Mapping[str, Any]  # the tables of config.toml
    history: Sequence[Mapping[str, Any]]  # lines of history.jsonl; the last one is the result
    labels: NDArray  # (n,)
    model: Any


@dataclass(frozen=True)
class Report:
    """What the page shows; None or empty where a run has no such thing."""

    title: str
    headline: str
    caution: str
    confidence: str
    facts: list[tuple[str, str]]
    clusters: list[Cluster]
    curves: list[tuple[str, str]]  # titles and SVG
    numbers: tuple[list[str], list[list[str]]]  # header and rows
    map: dict[str, Any]  # for the script
    map_method: str
    n_samples: int
    space: SubspaceSpace
    angles: NDArray | None  # smallest ones between subspaces, in degrees (k, k)
    confusion: metrics.ConfusionMatrix | None
    scores: Mapping[str, float] | None
    config: dict[str, list[tuple[str, str]]]


def collect(
    run: RunFacts, data: Dataset, true: NDArray | None = None, *, threads: int = 1
) -> Report:
    """Look at the samples of a run and work out everything that its report says.

    True classes (n,), numbers or words, score the result and name the clusters. The map is made in
    so many `threads`. Samples that are not those of the run raise `DataError`.
    """
    result = run.history[-1]
    n_clusters = len(result["sizes"])
    check_data(run.config, data.samples.pictures)
    labels = np.asarray(run.labels, dtype=np.int64)
    space = space_of(run.model, data.samples.shape)
    survey = look(data.samples, labels, n_clusters, space, MEMBERS)
    colour = colours(n_clusters)
    clusters = Illustrator(data, labels, space, survey, colour).clusters()
    scores = confusion = None
    if true is not None:
        scores = metrics.scores(true, labels)
        confusion = _confusion(true, labels)
        for cluster in clusters:
            _name(cluster, true[labels == cluster.number])
    places, map_method = flatten(survey.points, threads=threads)
    return Report(
        title=f"{run.config['data']['name']}, {run.config['run'].get('method', '')}",
        headline=_headline(run, scores),
        caution=words.caution(result),
        confidence=words.confidence(result),
        facts=_facts(run, scores),
        clusters=clusters,
        curves=[(one.title, line(one)) for one in course.series(run.history)],
        numbers=course.table(run.history),
        map=_map(data, survey, places, labels, true, colour),
        map_method=map_method,
        n_samples=len(labels),
        space=space,
        angles=space.angles() if space.decodes and 1 < n_clusters <= _WIDEST else None,
        confusion=confusion,
        scores=scores,
        config=_config(run),
    )


def _name(cluster: Cluster, classes: NDArray) -> None:
    """Name the class that most members of a cluster belong to."""
    if len(classes):
        names, counts = np.unique(classes, return_counts=True)
        best = int(counts.argmax())
        cluster.most, cluster.purity = str(names[best]), float(counts[best] / counts.sum())


def _headline(run: RunFacts, scores: Mapping[str, float] | None) -> str:
    data, result = run.config["data"], run.history[-1]
    what = "images" if is_image(tuple(data["shape"])) else "samples"
    empty = sum(size == 0 for size in result["sizes"])
    text = f"{data['samples']:,} {what} in {len(result['sizes'])} clusters"
    text += f" ({empty} of them empty)" if empty else ""
    text += f", found by {run.config['run']['method']} in {_duration(result['seconds'])}"
    if scores is not None:
        text += f"; {scores['acc']:.1%} of the {what} agree with the known classes"
    return f"{text}."


def _duration(seconds: float) -> str:
    """Time for people that stays on one line."""
    return words.duration(seconds).replace(" ", "\u00a0")


def _facts(run: RunFacts, scores: Mapping[str, float] | None) -> list[tuple[str, str]]:
    data, about, result = run.config["data"], run.config["run"], run.history[-1]
    facts = {"Samples": f"{data['samples']:,}", "Shape": " × ".join(map(str, data["shape"]))}
    facts["Encoder"] = words.encoder(run.config)
    facts["Clusters"] = str(len(result["sizes"]))
    if result["dims"]:
        least, most = min(result["dims"]), max(result["dims"])
        facts["Subspace dimension"] = str(least) if least == most else f"{least}–{most}"
    facts["Preset"] = Path(about.get("preset") or "").stem  # of a file without its folder
    facts["Time"] = _duration(result["seconds"])
    facts |= {name.upper(): f"{score:.1%}" for name, score in (scores or {}).items()}
    return [(name, text) for name, text in facts.items() if text]


def _map(
    data: Dataset,
    survey: Survey,
    places: NDArray,
    labels: NDArray,
    true: NDArray | None,
    colour: list[str],
) -> dict[str, Any]:
    """What the script of the page draws the map from."""
    chosen = survey.chosen
    made: dict[str, Any] = {
        "places": np.round(places, 4).tolist(),
        "index": chosen.tolist(),
        "cluster": labels[chosen].tolist(),
        "colours": colour,
        "sheet": None,
    }
    if data.samples.names is not None:
        made["names"] = [data.samples.called(row) for row in made["index"]]
    if true is not None:
        classes, number = np.unique(true, return_inverse=True)
        made["classes"] = [str(name) for name in classes]
        made["class"] = number[chosen].tolist()
        made["classColours"] = colours(len(classes))
    pictures = data.samples.pictures
    if is_image(pictures.shape):
        painter = Painter(pictures.shape, min(0.0, survey.low), survey.high, _HOVER_SIDE)
        one = painter.pixels(pictures.take(chosen[:1])).shape
        count = min(_PICTURES, max(1, _PIXELS // int(np.prod(one))))
        pictured = sample_rows(len(chosen), count, seed=0)
        pixels, columns = sheet(painter.pixels(pictures.take(chosen[pictured])))
        made["sheet"] = {
            "uri": data_uri(pixels),
            "columns": columns,
            "height": one[1],
            "width": one[2],
            "points": pictured.tolist(),
        }
    return made


def _confusion(true: NDArray, labels: NDArray) -> metrics.ConfusionMatrix | None:
    """The classes in the clusters; None where there are too many of either to show."""
    try:
        found = metrics.confusion_matrix(true, labels)
    except InputError:
        return None
    return found if max(found.counts.shape) <= _WIDEST else None


def _config(run: RunFacts) -> dict[str, list[tuple[str, str]]]:
    about, result = run.config["run"], run.history[-1]
    created = about.get("created")
    tables = {
        "Run": {
            "data": run.config["data"]["source"],
            "created": created and created.replace("T", " ").replace("+00:00", " UTC"),
            "seed": result["seed"],
            "seconds": f"{result['seconds']:.2f}",
            "objective": result["objective"],
            result.get("unit", "iterations"): result["iterations"],
        },
        "Settings": run.config["parameters"],
        "Version": {"kscn": about.get("kscn")},
    }
    return {
        name: [(str(key), _setting(value)) for key, value in table.items() if value is not None]
        for name, table in tables.items()
        if table
    }


def _setting(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
