"""A run that is looked through and corrected: pages of members, edits, exports."""

import io
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from kscn.data import Dataset, Source
from kscn.errors import InputError
from kscn.estimators.linear import KSubspaces
from kscn.report.palette import colours
from kscn.report.pictures import Painter, data_uri, is_image
from kscn.report.spaces import space_of
from kscn.report.survey import Pass
from kscn.runs.edits import NONE, letters, open_editor
from kscn.runs.opened import check_data

# What the members of a cluster can be sorted by.
SORTS = {
    "typical": "most typical first",
    "borderline": "nearest to another cluster first",
    "odd": "oddest first",
    "index": "by index",
}
MOST_PARTS, LARGEST_PAGE = 20, 200
# Subspaces remembered per sample: its own and the next, with one to spare for merged clusters.
_KEPT = 3
# Points in the little curve of a vector, features in the table of one, pixels of a large picture.
_POINTS, _FEATURES, _LARGE = 48, 200, 256
# Where spreadsheets begin to read a formula: at the start of a cell, also of one that they make of
# what follows a semicolon.
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@])")


class Explorer:
    """Everything that the page of `kscn explore` asks for; safe to call from several threads.

    `path` is the run directory, with its config.toml, labels (-1 for none), number of clusters,
    model, samples, and what it says about its clusters. The run is never written to: edits are in
    `explore/edits.jsonl` beside it.
    """

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        labels: NDArray,
        n_clusters: int,
        model: Any,
        data: Dataset,
        note: str = "",
    ) -> None:
        self._source, self._drawn = data.samples, data.samples.pictures
        check_data(config, self._drawn)
        self._labels = labels.astype(np.int32)
        self._model = model
        self._nearest, self._distances, (low, high) = _nearest(self._source, self._labels, model)
        self._pictures = is_image(self._drawn.shape)
        self._range = (min(0.0, low), high) if self._pictures else (low, high)
        self._editor = open_editor(path, self._labels, n_clusters)
        self._title = f"{config['data']['name']}, {config['run'].get('method', '')}"
        self._note = note
        self._lock = threading.RLock()

    def close(self) -> None:
        """Let another process edit."""
        self._editor.close()

    # What is there ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All clusters, and what can be done."""
        with self._lock:
            grouping = self._editor.grouping
            shades = colours(grouping.next_cluster)
            flags = grouping.labels[sorted(grouping.flagged)]
            clusters = [
                {
                    "id": cluster,
                    "name": grouping.names.get(cluster, ""),
                    "size": size,
                    "flagged": int((flags == cluster).sum()),
                    "colour": shades[cluster] if cluster != NONE else "#888888",
                }
                for cluster, size in grouping.sizes().items()
            ]
            return {
                "title": self._title,
                "note": self._note,
                "samples": len(self._labels),
                "pictures": self._pictures,
                "clusters": clusters,
                "sorts": SORTS,
                "undo": bool(self._editor.done),
                "redo": bool(self._editor.undone),
                "revision": self._editor.revision,
            }

    def members(self, cluster: int, sort: str, page: int = 0, size: int = 60) -> dict[str, Any]:
        """A page (from 0) of a cluster's members; the last one if it has no such page."""
        if not 1 <= size <= LARGEST_PAGE or page < 0:
            raise InputError(f"pages have 1 to {LARGEST_PAGE} samples and numbers from 0.")
        with self._lock:
            order = self._order(cluster, sort)
            pages = max(1, -(-len(order) // size))
            page = min(page, pages - 1)
            chosen = order[page * size : (page + 1) * size]
            facts = self._facts(chosen)
        if len(chosen):
            rows = self._drawn.take(chosen)
            made = self._painted(rows) if self._pictures else self._curves(rows)
            for fact, drawn in zip(facts, made, strict=True):
                fact["picture" if self._pictures else "curve"] = drawn
        return {"page": page, "pages": pages, "size": len(order), "members": facts}

    def sample(self, index: int, sort: str = "index", size: int = 60) -> dict[str, Any]:
        """One sample in full, and on which page of its cluster it is."""
        with self._lock:
            if not 0 <= index < len(self._labels):
                raise InputError(
                    f"there is no sample {index}; give an index from 0 to {len(self._labels) - 1}."
                )
            cluster = int(self._editor.grouping.labels[index])
            place = int(np.flatnonzero(self._order(cluster, sort) == index)[0])
            fact = self._facts(np.array([index]))[0] | {"page": place // max(1, size)}
        rows = self._drawn.take([index])
        if self._pictures:
            return fact | {"picture": self._painted(rows, most=_LARGE)[0]}
        pairs = zip(self._drawn.feature_names, rows.reshape(-1)[:_FEATURES], strict=False)
        features = [[name, float(f"{value:.6g}")] for name, value in pairs]
        return fact | {"features": features, "width": rows.size, "curve": self._curves(rows)[0]}

    def _order(self, cluster: int, sort: str) -> NDArray:
        """Members of a cluster as they are sorted."""
        if sort not in SORTS:
            raise InputError(f"members cannot be sorted by {sort!r}; use {', '.join(SORTS)}.")
        members = self._editor.grouping.members(cluster)
        own, (gaps, _) = self._distances[members, 0], self._gaps(members)
        scores = {"typical": own, "borderline": gaps, "odd": -own, "index": members}
        return members[np.argsort(scores[sort], kind="stable")]

    def _gaps(self, samples: NDArray) -> tuple[NDArray, NDArray]:
        """How much nearer samples are to their own cluster than to the next one, and which that is.

        The next cluster is the first that was not merged with their own. Without one the gap is
        infinite and the number -1.
        """
        home = self._editor.grouping.home
        clusters, distances = home[self._nearest[samples]], self._distances[samples]
        other = clusters != clusters[:, :1]  # (b, m)
        first = other.argmax(axis=1)
        rows = np.arange(len(samples))
        found = other[rows, first]
        gap = distances[rows, first] - distances[:, 0]
        return np.where(found, gap, np.inf), np.where(found, clusters[rows, first], -1)

    def _facts(self, samples: NDArray) -> list[dict[str, Any]]:
        """What is known of some samples, without what they look like."""
        grouping, facts = self._editor.grouping, []
        for index, gap, other in zip(samples.tolist(), *self._gaps(samples), strict=True):
            fact: dict[str, Any] = {
                "index": index,
                "cluster": int(grouping.labels[index]),
                "original": int(self._labels[index]),
                "flagged": index in grouping.flagged,
                "moved": index in grouping.moved,
                "outside": round(float(self._distances[index, 0]), 6),
            }
            if self._source.names is not None:
                fact["file"] = self._source.called(index)
            if other >= 0:
                fact |= {"next": int(other), "gap": round(float(gap), 6)}
            facts.append(fact)
        return facts

    def _painted(self, rows: NDArray, **options: int) -> list[str]:
        painter = Painter(self._drawn.shape, *self._range, **options)
        return [data_uri(pixels) for pixels in painter.pixels(rows)]

    def _curves(self, rows: NDArray) -> list[list[float]]:
        """Values between 0 and 1 on one scale for all samples; long vectors are averaged."""
        low, high = self._range
        values = (rows.reshape(len(rows), -1).astype(np.float64) - low) / max(high - low, 1e-300)
        if values.shape[1] > _POINTS:
            pieces = np.array_split(values, _POINTS, axis=1)
            values = np.stack([piece.mean(axis=1) for piece in pieces], axis=1)
        return np.round(values, 4).tolist()

    # Edits --------------------------------------------------------------------------------------

    def edit(self, entry: Mapping[str, Any]) -> str:
        """Make an edit, undo or redo; say what was done."""
        with self._lock:
            return self._editor.make(entry)

    def split(self, cluster: Any, parts: Any = 2) -> str:
        """Split a cluster by k-subspaces on its members; say what came out."""
        if type(parts) is not int or not 2 <= parts <= MOST_PARTS:
            raise InputError(f"a cluster is split into 2 to {MOST_PARTS} parts, not {parts!r}.")
        with self._lock:
            members = self._editor.grouping.members(cluster)
            revision = self._editor.revision
        if len(members) < parts:
            raise InputError(
                f"cluster {cluster} has {len(members)} samples, too few for {parts} parts."
            )
        part = self._parts(members, parts)  # may take a while: others look on meanwhile
        with self._lock:
            if self._editor.revision != revision:
                raise InputError("the clusters were edited meanwhile; split again.")
            entry = {"edit": "split", "cluster": cluster, "parts": letters(part), "count": parts}
            return self.edit(entry)

    def _parts(self, members: NDArray, parts: int) -> NDArray:
        """The part of every member, the largest part first."""
        points: Any = _Chosen(self._source, members)
        if not isinstance(self._model, KSubspaces):  # in the latents, where subspaces are
            points = self._model.transform(points)
        affine = bool(getattr(self._model, "affine", False))
        # Subspaces as large as the one that most members come from.
        counts = np.bincount(self._labels[members] + 1)[1:]
        dim = int(self._model.subspace_dims_[counts.argmax()]) if counts.any() else "auto"
        model = KSubspaces(parts, subspace_dim=dim, affine=affine, n_init=4, random_state=0)
        found = model.fit(points).labels_
        if len(np.unique(found)) < parts:
            raise InputError(
                f"these members do not fall into {parts} parts: some stay empty; try fewer."
            )
        return found

    # Exports ------------------------------------------------------------------------------------

    def export(self, kind: str) -> bytes:
        """The clusters as they are now, as a file of kind "csv" or "parquet".

        In .csv, an apostrophe before a name that looks like a formula keeps spreadsheets from
        running it.
        """
        written: Callable[[str], str] = _harmless if kind == "csv" else str
        with self._lock:
            grouping = self._editor.grouping
            labels = grouping.labels.copy()
            names = {cluster: written(name) for cluster, name in grouping.names.items()}
            flagged = np.isin(np.arange(len(labels)), list(grouping.flagged))
        columns: dict[str, Any] = {"index": np.arange(len(labels))}
        if self._source.names is not None:
            columns["file"] = [written(self._source.called(row)) for row in range(len(labels))]
        called = pyarrow.array([names.get(label) for label in labels.tolist()], pyarrow.string())
        columns |= {"original": self._labels, "flagged": flagged}
        columns |= {"name": called.dictionary_encode(), "label": labels}
        write = pyarrow.csv.write_csv if kind == "csv" else pyarrow.parquet.write_table
        file = io.BytesIO()
        write(pyarrow.table(columns), file)
        return file.getvalue()


def _harmless(name: str) -> str:
    return _FORMULA.sub(r"\1'", name)


def _nearest(
    source: Source, labels: NDArray, model: Any
) -> tuple[NDArray, NDArray, tuple[float, float]]:
    """In one pass: the nearest subspaces of every sample, their distances, the range of values.

    The clusters of the run by distance, each sample's own first (n, m), and the distances, which
    are shares of the sample's energy where subspaces are linear.
    """
    blocks = Pass(source, labels, space_of(model, source.shape))
    clusters, distances = [], []
    for here, _, found in blocks:
        own = np.where(labels[here] >= 0, labels[here], found.argmin(axis=1))
        # A sample's own cluster first, whatever rounding did to its distance.
        order = found.copy()
        order[np.arange(len(order)), own] = -1
        nearest = np.argsort(order, axis=1, kind="stable")[:, :_KEPT]
        clusters.append(nearest.astype(np.int32))
        distances.append(np.take_along_axis(found, nearest, axis=1).astype(np.float32))
    return np.concatenate(clusters), np.concatenate(distances), blocks.range


class _Chosen(Source):
    """Some rows of a source, read when they are needed."""

    def __init__(self, source: Source, rows: NDArray) -> None:
        super().__init__(source.name, (len(rows), *source.shape), source.dtype)
        self._source, self._chosen = source, rows
        self.on_disk = source.on_disk

    def _gather(self, rows: NDArray) -> NDArray:
        return self._source.take(self._chosen[rows])
