"""A run that is looked through and corrected: pages of members, edits, exports."""

from __future__ import annotations

import csv
import io
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.data import Dataset, Source
from kscn.errors import InputError
from kscn.estimators.linear import KSubspaces
from kscn.extras import require
from kscn.report.palette import colours
from kscn.report.survey import check_data
from kscn.web.editor import open_editor
from kscn.web.gallery import Gallery
from kscn.web.grouping import NONE, packed
from kscn.web.nearness import measure

# What the members of a cluster can be sorted by; the first three need subspaces.
SORTS = {
    "typical": "most typical first",
    "borderline": "nearest to another cluster first",
    "odd": "oddest first",
    "index": "by index",
}
MOST_PARTS, LARGEST_PAGE = 20, 200
_ROWS_AT_ONCE = 100_000
# Sorted members are kept of this many clusters, because pages are turned more often than clusters.
_ORDERS = 8
# Where spreadsheets begin to read a formula: at the start of a cell, also of one that they make of
# what follows a semicolon.
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@])")


class Explorer:
    """Everything that the page of `kscn explore` asks for; safe to call from several threads.

    The run is never written to: edits are in `explore/edits.jsonl` beside it.

    Parameters
    ----------
    path : Path
        The run directory.
    config : mapping
        The tables of its config.toml.
    labels : ndarray of shape (n,)
        Its labels; -1 for none.
    n_clusters : int
        How many clusters it has.
    model : estimator or None
        Its model, where the method leaves one.
    data : Dataset
        Its samples.
    note : str
        What the run says about its clusters.
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
        self._source = data.samples
        check_data(config, data.samples.pictures)
        self._labels = labels.astype(np.int32)
        self._model = model
        self._nearness = measure(self._source, self._labels, model)
        self._gallery = Gallery(data, self._nearness.low, self._nearness.high)
        self._editor = open_editor(path, self._labels, n_clusters)
        self._title = f"{config['data']['name']}, {config['run'].get('method', '')}"
        self._note = note
        self._lock = threading.RLock()
        self._orders: dict[tuple[int, str], NDArray] = {}

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
                "pictures": self._gallery.pictures,
                "clusters": clusters,
                "sorts": {name: SORTS[name] for name in self._sorts()},
                "undo": self._editor.can_undo,
                "redo": self._editor.can_redo,
                "revision": self._editor.revision,
            }

    def page(self, cluster: int, sort: str, number: int, size: int) -> dict[str, Any]:
        """Page `number` (from 0) of a cluster's members; the last one if it has no such page."""
        if not 1 <= size <= LARGEST_PAGE or number < 0:
            raise InputError(f"pages have 1 to {LARGEST_PAGE} samples and numbers from 0.")
        with self._lock:
            order = self._order(cluster, sort)
            pages = max(1, -(-len(order) // size))
            number = min(number, pages - 1)
            chosen = order[number * size : (number + 1) * size]
            facts = self._facts(chosen)
        for fact, drawn in zip(facts, self._drawn(chosen), strict=True):
            fact |= drawn
        return {"page": number, "pages": pages, "size": len(order), "members": facts}

    def sample(self, index: int, sort: str, size: int) -> dict[str, Any]:
        """One sample in full, and on which page of its cluster it is."""
        with self._lock:
            if not 0 <= index < len(self._labels):
                raise InputError(
                    f"there is no sample {index}; give an index from 0 to {len(self._labels) - 1}."
                )
            cluster = int(self._editor.grouping.labels[index])
            place = int(np.flatnonzero(self._order(cluster, sort) == index)[0])
            fact = self._facts(np.array([index]))[0]
        return {**fact, "page": place // max(1, size), **self._gallery.portrait(index)}

    def _sorts(self) -> list[str]:
        return list(SORTS) if self._nearness.known else ["index"]

    def _order(self, cluster: int, sort: str) -> NDArray:
        """Members of a cluster as they are sorted, kept until the next edit."""
        if sort not in self._sorts():
            raise InputError(f"members cannot be sorted by {sort!r}; use {self._sorts()}.")
        if (cluster, sort) not in self._orders:
            grouping = self._editor.grouping
            members = grouping.members(cluster)
            if sort == "index":
                score = members
            elif sort == "borderline":
                score, _ = self._nearness.gaps(members, grouping.home)
            else:
                own = self._nearness.distances[members, 0]
                score = own if sort == "typical" else -own
            if len(self._orders) >= _ORDERS:
                self._orders.pop(next(iter(self._orders)))
            self._orders[cluster, sort] = members[np.argsort(score, kind="stable")]
        return self._orders[cluster, sort]

    def _facts(self, samples: NDArray) -> list[dict[str, Any]]:
        grouping = self._editor.grouping
        labels = grouping.labels[samples]
        facts: list[dict[str, Any]] = [
            {
                "index": int(index),
                "cluster": int(label),
                "original": int(self._labels[index]),
                "flagged": int(index) in grouping.flagged,
                "moved": int(index) in grouping.moved,
            }
            for index, label in zip(samples, labels, strict=True)
        ]
        if self._source.names is not None:
            for fact in facts:
                fact["file"] = self._source.called(fact["index"])
        if self._nearness.known:
            gaps, others = self._nearness.gaps(samples, grouping.home)
            for fact, gap, other in zip(facts, gaps, others, strict=True):
                fact["outside"] = round(float(self._nearness.distances[fact["index"], 0]), 6)
                if other >= 0:
                    fact |= {"next": int(other), "gap": round(float(gap), 6)}
        return facts

    def _drawn(self, samples: NDArray) -> list[dict[str, Any]]:
        return self._gallery.thumbnails(samples) if len(samples) else []

    # Edits --------------------------------------------------------------------------------------

    def edit(self, entry: Mapping[str, Any]) -> str:
        """Make an edit, undo or redo; say what was done."""
        with self._lock:
            said = self._editor.make(entry)
            self._orders.clear()
            return said

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
            entry = {"edit": "split", "cluster": cluster, "parts": packed(part), "count": parts}
            return self.edit(entry)

    def _parts(self, members: NDArray, parts: int) -> NDArray:
        """The part of every member, the largest part first."""
        points: Any = _Chosen(self._source, members)
        dim: int | str = "auto"
        affine = bool(getattr(self._model, "affine", False))
        if hasattr(self._model, "subspaces_"):
            run_clusters = self._labels[members]
            run_clusters = run_clusters[run_clusters >= 0]
            if len(run_clusters):  # subspaces as large as the one that most members come from
                dim = int(self._model.subspace_dims_[np.bincount(run_clusters).argmax()])
            if not isinstance(self._model, KSubspaces):  # in the latents, where subspaces are
                points = self._model.transform(points)
        model = KSubspaces(parts, subspace_dim=dim, affine=affine, n_init=4, random_state=0)
        found = model.fit(points).labels_
        if len(np.unique(found)) < parts:
            raise InputError(
                f"these members do not fall into {parts} parts: some stay empty; try fewer."
            )
        return found

    # Exports ------------------------------------------------------------------------------------

    def csv(self) -> Iterator[bytes]:
        """The clusters now, as the pieces of a .csv file with the label in its last column.

        An apostrophe before a name that looks like a formula keeps spreadsheets from running it.
        """
        with self._lock:
            labels, names, flags = self._frozen()
        names = {cluster: _FORMULA.sub(r"\1'", name) for cluster, name in names.items()}
        file = [] if self._source.names is None else ["file"]
        yield (",".join(["index", *file, "original", "flagged", "name", "label"]) + "\n").encode()
        for start in range(0, len(labels), _ROWS_AT_ONCE):
            text = io.StringIO()
            rows = csv.writer(text, lineterminator="\n")
            for index in range(start, min(start + _ROWS_AT_ONCE, len(labels))):
                label, flag = int(labels[index]), int(flags[index])
                called = [_FORMULA.sub(r"\1'", self._source.called(index))] if file else []
                row = [index, *called, self._labels[index], flag, names.get(label, ""), label]
                rows.writerow(row)
            yield text.getvalue().encode()

    def parquet(self) -> bytes:
        """The same as a Parquet file."""
        pyarrow = require("pyarrow", "parquet", "writing Parquet")
        require("pyarrow.parquet", "parquet", "writing Parquet")
        with self._lock:
            labels, names, flags = self._frozen()
        known = np.array(sorted(names), dtype=np.int64)
        words = pyarrow.DictionaryArray.from_arrays(
            pyarrow.array(
                np.searchsorted(known, labels), pyarrow.int32(), mask=~np.isin(labels, known)
            ),
            pyarrow.array([names[cluster] for cluster in known.tolist()], pyarrow.string()),
        )
        files = {}
        if self._source.names is not None:
            files["file"] = [self._source.called(row) for row in range(len(labels))]
        table = pyarrow.table(
            {
                "index": np.arange(len(labels)),
                **files,
                "original": self._labels,
                "flagged": flags,
                "name": words,
                "label": labels,
            }
        )
        file = io.BytesIO()
        pyarrow.parquet.write_table(table, file)
        return file.getvalue()

    def _frozen(self) -> tuple[NDArray, dict[int, str], NDArray]:
        grouping = self._editor.grouping
        flags = np.zeros(len(self._labels), dtype=bool)
        flags[sorted(grouping.flagged)] = True
        return grouping.labels.copy(), dict(grouping.names), flags


class _Chosen(Source):
    """Some rows of a source, read when they are needed."""

    def __init__(self, source: Source, rows: NDArray) -> None:
        super().__init__(source.name, len(rows), source.shape, source.dtype)
        self._source, self._chosen = source, rows
        self.on_disk = source.on_disk

    def _read(self, start: int, stop: int) -> NDArray:
        return self._source.take(self._chosen[start:stop])

    def _gather(self, rows: NDArray) -> NDArray:
        return self._source.take(self._chosen[rows])
