"""What a report says about a run, as plain values that the template lays out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kscn import metrics
from kscn.data import Dataset
from kscn.errors import InputError
from kscn.report import course, words
from kscn.report.charts import line
from kscn.report.clusters import Cluster, Illustrator
from kscn.report.map import flatten, packed
from kscn.report.palette import colours
from kscn.report.pictures import Painter, data_uri, is_image, sheet
from kscn.report.spaces import SubspaceSpace, space_of
from kscn.report.survey import Survey, check_data, look
from kscn.subspaces import principal_angles

# Pictures for the pointer on the map, and pixels in all of them together.
_PICTURES, _PIXELS = 4000, 6_000_000
_HOVER_SIDE = 32
# A table with more rows or columns than this is left out; the command line can print it.
_WIDEST = 60

# Methods whose name on the command line says nothing in a sentence.
_CALLED = {"best": "KSCNPlus"}


@dataclass(frozen=True)
class Matrix:
    """An oblong of numbers with names on both sides, as lists of rows."""

    rows: list[str]
    columns: list[str]
    cells: list[list[str]]  # what is written in them
    shades: list[list[float]]  # how strongly they are coloured, 0 to 1
    notes: list[list[str]]  # what a cell says in full
    marks: set[tuple[int, int]] = field(default_factory=set)  # cells that match


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
    choice: dict[str, str]  # how the clustering was chosen
    tried: list[tuple[str, str]]  # clusterings and their self-consistency
    facts: list[tuple[str, str]]
    clusters: list[Cluster]
    curves: list[tuple[str, str]]  # titles and SVG
    started: bool  # whether there are curves of the search for a start
    pretrained: bool
    numbers: tuple[list[str], list[list[str]]]  # header and rows
    map: dict[str, Any]  # for the script
    map_method: str
    n_samples: int
    space: SubspaceSpace
    angles: Matrix | None
    confusion: Matrix | None
    scores: Mapping[str, float] | None
    config: dict[str, list[tuple[str, str]]]


def collect(
    run: RunFacts,
    data: Dataset,
    true: NDArray | None = None,
    *,
    tsne: bool = True,
    threads: int = 1,
) -> Report:
    """Look at the samples of a run and work out everything that its report says.

    True classes (n,), numbers or words, score the result and name the clusters. The map is made by
    `tsne` in so many `threads`, where that is installed. Samples that are not those of the run
    raise `DataError`.
    """
    result = run.history[-1]
    tried = (result.get("chosen") or {}).get("tried", [])
    sizes = np.asarray(result["sizes"])
    check_data(run.config, data.samples.pictures)
    labels = np.asarray(run.labels, dtype=np.int64)
    space = space_of(run.model, data.samples.shape)
    survey = look(data.samples, labels, len(sizes), space, Illustrator.members(len(sizes)))
    colour = colours(len(sizes))
    clusters = Illustrator(data, labels, space, survey, colour).clusters()
    scores = confusion = None
    if true is not None:
        scores = metrics.scores(true, labels)
        confusion = _confusion(true, labels)
        for cluster in clusters:
            _name(cluster, true[labels == cluster.number])
    curves = course.series(run.history)
    places, map_method = flatten(survey.points, tsne=tsne, threads=threads)
    return Report(
        title=f"{run.config['data']['name']}, {run.config['run'].get('method', '')}",
        headline=_headline(run, scores, survey, space),
        caution=words.caution(result),
        choice=words.choice(result),
        tried=[(words.clustering(row), f"{row['consistency']:.3f}") for row in tried],
        facts=_facts(run, scores),
        clusters=clusters,
        curves=[(one.title, line(one)) for one in curves],
        started={"start", "fit"} <= {record.get("stage") for record in run.history},
        pretrained=any(one.break_at for one in curves),
        numbers=course.table(run.history),
        map=_map(data, survey, places, labels, true, colour),
        map_method=map_method,
        n_samples=len(labels),
        space=space,
        angles=_angles(space),
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


def _headline(
    run: RunFacts, scores: Mapping[str, float] | None, survey: Survey, space: SubspaceSpace
) -> str:
    data, result = run.config["data"], run.history[-1]
    shape, method = data["shape"], run.config["run"]["method"]
    what = "images" if is_image(tuple(shape)) else "samples"
    text = (
        f"{_CALLED.get(method, method)} sorted {data['samples']:,} {what} into "
        f"{_clusters(result['sizes'])} in {_duration(result['seconds'])}"
    )
    if scores is not None:
        return f"{text}; {scores['acc']:.1%} of them agree with the known classes."
    if space.subspaces.offsets is None:
        sizes = np.asarray(result["sizes"], dtype=float)
        held = 1 - float(survey.outside @ sizes / max(1.0, sizes.sum()))
        return f"{text}; their subspaces hold {held:.1%} of the energy of the {space.name}."
    return f"{text}."


def _clusters(sizes: Sequence[int]) -> str:
    """How many there are, and how many of them hold nothing."""
    empty = sum(size == 0 for size in sizes)
    return f"{len(sizes)} clusters" + (f" ({empty} of them empty)" if empty else "")


def _duration(seconds: float) -> str:
    """Time for people that stays on one line."""
    return words.duration(seconds).replace(" ", "\u00a0")


def _facts(run: RunFacts, scores: Mapping[str, float] | None) -> list[tuple[str, str]]:
    data, about, result = run.config["data"], run.config["run"], run.history[-1]
    shape = " × ".join(map(str, data["shape"]))
    dims, encoder = result["dims"], words.encoder(run.config)
    preset = Path(about.get("preset") or "").stem  # of a file without its folder
    facts = [
        ("Data", str(data["name"])),
        ("Samples", f"{data['samples']:,}"),
        ("Encoder", encoder)
        if encoder
        else ("Shape", f"{shape} features" if len(data["shape"]) == 1 else shape),
        ("Method", f"{about['method']}, {preset}" if preset else about["method"]),
        ("Clusters", _clusters(result["sizes"]).replace(" clusters", "")),
    ]
    if dims:
        least, most = min(dims), max(dims)
        facts.append(("Subspace dimension", str(least) if least == most else f"{least}–{most}"))
    facts.append(("Time", _duration(result["seconds"])))
    return facts + [(name.upper(), f"{score:.1%}") for name, score in (scores or {}).items()]


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
        "places": packed(places),
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
        count = min(len(chosen), _PICTURES, max(1, _PIXELS // int(np.prod(one))))
        pictured = np.sort(np.random.default_rng(0).permutation(len(chosen))[:count])
        pixels, columns = sheet(painter.pixels(pictures.take(chosen[pictured])))
        made["sheet"] = {
            "uri": data_uri(pixels),
            "columns": columns,
            "height": one[1],
            "width": one[2],
            "points": pictured.tolist(),
        }
    return made


def _angles(space: SubspaceSpace) -> Matrix | None:
    if not 2 <= len(space.dims) <= _WIDEST:
        return None
    k = len(space.dims)
    bases = [space.subspaces.bases[i][:, : int(dim)] for i, dim in enumerate(space.dims)]

    def pair(i: int, j: int) -> tuple[str, float, str]:
        if i == j:
            return "", 0.0, f"cluster {i} with itself"
        degrees = torch.rad2deg(principal_angles(bases[i], bases[j])).tolist()
        told = ", ".join(f"{angle:.1f}°" for angle in degrees)
        return f"{degrees[0]:.0f}", 1 - degrees[0] / 90, f"clusters {i} and {j}: {told}"

    names = [str(i) for i in range(k)]
    pairs = [[pair(i, j) for j in range(k)] for i in range(k)]
    return Matrix(
        names,
        names,
        [[cell for cell, _, _ in row] for row in pairs],
        [[shade for _, shade, _ in row] for row in pairs],
        [[note for _, _, note in row] for row in pairs],
    )


def _confusion(true: NDArray, labels: NDArray) -> Matrix | None:
    try:
        found = metrics.confusion_matrix(true, labels)
    except InputError:
        return None
    if max(found.counts.shape) > _WIDEST:
        return None
    totals = found.counts.sum(axis=1).clip(min=1)
    classes = [str(name) for name in found.classes]
    clusters = ["none" if str(name) == "-1" else str(name) for name in found.clusters]
    return Matrix(
        classes,
        clusters,
        [[f"{count:,}" if count else "" for count in row] for row in found.counts.tolist()],
        (found.counts / totals[:, None]).tolist(),
        [
            [
                f"{found.counts[r, c]:,} of {totals[r]:,} samples of class {name} "
                f"({found.counts[r, c] / totals[r]:.1%}) are in cluster {cluster}"
                for c, cluster in enumerate(clusters)
            ]
            for r, name in enumerate(classes)
        ],
        {(row, column) for column, row in enumerate(found.matches) if row >= 0},
    )


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
        name: [(str(key), _told(value)) for key, value in table.items() if value is not None]
        for name, table in tables.items()
        if table
    }


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_told(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_told(item) for item in value)
    return str(value)
