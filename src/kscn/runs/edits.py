"""Clusters as people change them: names, merges, splits, moved and flagged samples, with undo.

A grouping is a fold of edits over the labels of a run. Edits are plain dictionaries, the lines of
a journal; `Grouping.apply` checks one against the present grouping before it changes anything.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.constraints import FLAG, TEXT, Integer, Test, check_table
from kscn.errors import InputError, KscnError, ModelFileError
from kscn.runs.directory import locked
from kscn.runs.journal import Journal

LONGEST_NAME = 100
# Samples that are in no cluster, as some methods leave them.
NONE = -1
# The letter of the first part of a split, where it says the part of each member.
_FIRST = ord("a")

_COUNT = Integer(0)
_SOME = Test(
    "a list of one or more numbers from 0",
    lambda value: isinstance(value, list) and value != [] and all(map(_COUNT.allows, value)),
)
_NAME = Test(
    f"a text of at most {LONGEST_NAME} characters",
    lambda value: isinstance(value, str) and len(value) <= LONGEST_NAME,
)
# What an edit of each kind consists of.
_RULES: dict[str, dict[str, Any]] = {
    "name": {"cluster": _COUNT, "name": _NAME},
    "merge": {"clusters": _SOME, "into": _COUNT},
    "split": {"cluster": _COUNT, "parts": TEXT, "count": Integer(2)},
    "move": {"samples": _SOME, "cluster": _COUNT},
    "flag": {"samples": _SOME, "flagged": FLAG},
}


def read_grouping(run: Path, labels: NDArray, n_clusters: int) -> Grouping:
    """The clusters of a run directory with all edits that the explorer has kept in it.

    `labels` are those of the run, -1 for none; empty clusters count in `n_clusters`.
    """
    return Editor(labels, n_clusters, _journal(run, labels)).grouping


def open_editor(run: Path, labels: NDArray, n_clusters: int) -> Editor:
    """The same, to make more edits; no other process may do so until it is closed."""
    with ExitStack() as opened:
        opened.enter_context(locked(run))
        editor = Editor(labels, n_clusters, _journal(run, labels))
        editor.close = opened.pop_all().close
        return editor


def _journal(run: Path, labels: NDArray) -> Journal:
    digest = hashlib.sha256(labels.astype(np.int32).tobytes()).hexdigest()
    about = {"samples": len(labels), "labels_sha256": digest}
    return Journal(run / "explore" / "edits.jsonl", about)


class Editor:
    """The clusters after all edits in a journal (`grouping`), and the way to make more.

    Undoing is an entry of the journal too: what was done is never erased from it. `revision` counts
    its entries: what is shown of an older one is out of date. `done` are the edits that count, and
    `undone` those that can be made again.
    """

    def __init__(self, labels: NDArray, n_clusters: int, journal: Journal) -> None:
        self._labels, self._n_clusters = labels, n_clusters
        self._journal = journal
        self.close: Callable[[], None] = lambda: None
        self.done: list[Mapping[str, Any]] = []
        self.undone: list[Mapping[str, Any]] = []
        self.revision = len(journal.entries)
        self.grouping = Grouping(labels, n_clusters)
        try:
            for entry in journal.entries:
                _step(self.done, self.undone, entry)
            for edit in self.done:
                self.grouping.apply(edit)
        except KscnError as error:
            raise ModelFileError(
                f"{journal.path} holds an edit that does not fit those before it ({error}); "
                "repair it, or move the file away to begin anew."
            ) from None

    def make(self, entry: Mapping[str, Any]) -> str:
        """Make an edit, or `{"edit": "undo"}` or `{"edit": "redo"}`; say what was done.

        It counts when it is on disk: until then it is made on copies.
        """
        kind = entry.get("edit")
        entry = {"edit": kind} if kind in ("undo", "redo") else dict(entry)
        done, undone = list(self.done), list(self.undone)
        _step(done, undone, entry)
        if kind == "undo":
            grouping = Grouping(self._labels, self._n_clusters)
            for edit in done:
                grouping.apply(edit)
            said = f"took back the last edit ({undone[-1]['edit']})"
        else:
            grouping = copy.deepcopy(self.grouping)
            said = grouping.apply(done[-1])
        self._journal.append(entry)
        self.done, self.undone, self.grouping = done, undone, grouping
        self.revision += 1
        return said


def _step(done: list[Any], undone: list[Any], entry: Mapping[str, Any]) -> None:
    """Bring the lists of edits that are done and undone up to date."""
    kind = entry.get("edit")
    if kind not in ("undo", "redo"):
        done.append(entry)
        undone.clear()
        return
    source, target = (done, undone) if kind == "undo" else (undone, done)
    if not source:
        raise InputError(f"there is nothing to {kind}.")
    target.append(source.pop())


class Grouping:
    """Which cluster every sample is in now; labels are -1 for none."""

    def __init__(self, labels: NDArray, n_clusters: int) -> None:
        self.labels = labels.astype(np.int32)
        self.clusters = list(range(n_clusters))  # ascending; numbers are never used twice
        self.names: dict[int, str] = {}
        self.flagged: set[int] = set()  # samples marked as wrong
        self.moved: set[int] = set()  # samples put where they are one by one
        # The cluster that each of the run's clusters went into by merges.
        self.home = np.arange(n_clusters, dtype=np.int32)
        self.next_cluster = n_clusters

    def members(self, cluster: int) -> NDArray:
        """Samples of a cluster, ascending."""
        if cluster != NONE:
            self._cluster(cluster)
        return np.flatnonzero(self.labels == cluster)

    def sizes(self) -> dict[int, int]:
        """Samples in every cluster, those in none last."""
        counts = np.bincount(self.labels + 1, minlength=self.next_cluster + 1)
        sizes = {cluster: int(counts[cluster + 1]) for cluster in self.clusters}
        return sizes | ({NONE: int(counts[0])} if counts[0] else {})

    def apply(self, edit: Mapping[str, Any]) -> str:
        """Make an edit and say what was done, or in one sentence why it cannot be made."""
        kind = edit.get("edit")
        if not isinstance(kind, str) or kind not in _RULES:
            raise InputError(f"there is no edit {kind!r}; use one of {', '.join(_RULES)}.")
        try:
            check_table(edit, _RULES[kind])
        except ValueError as error:
            raise InputError(f"the edit {kind!r} cannot be made: {error}.") from None
        make: Callable[..., str] = getattr(self, f"_{kind}")
        return make(*(edit[name] for name in _RULES[kind]))

    def _called(self, cluster: int) -> str:
        return f"“{self.names[cluster]}”" if cluster in self.names else f"cluster {cluster}"

    def _cluster(self, cluster: int) -> int:
        if cluster not in self.clusters:
            raise InputError(
                f"there is no cluster {cluster}; look at the list, it may have been merged."
            )
        return cluster

    def _samples(self, samples: list[int]) -> NDArray:
        rows = np.unique(samples)
        if rows[-1] >= len(self.labels):
            raise InputError(f"there are samples 0 to {len(self.labels) - 1}, and not {rows[-1]}.")
        return rows

    def _name(self, cluster: int, name: str) -> str:
        cluster, name = self._cluster(cluster), " ".join(name.split())
        if not name.isprintable():
            raise InputError("a name must consist of characters that can be seen.")
        if not name:
            self.names.pop(cluster, None)
            return f"cluster {cluster} has no name now"
        taken = [other for other, used in self.names.items() if used == name and other != cluster]
        if taken:
            raise InputError(
                f"cluster {taken[0]} is called {name!r} already; merge the two, or choose another "
                "name."
            )
        self.names[cluster] = name
        return f"cluster {cluster} is “{name}” now"

    def _merge(self, clusters: list[int], into: int) -> str:
        gone, into = {self._cluster(cluster) for cluster in clusters}, self._cluster(into)
        if into in gone:
            raise InputError(f"cluster {into} cannot be merged into itself; choose another.")
        merged = ", ".join(self._called(cluster) for cluster in sorted(gone))
        moved = np.isin(self.labels, list(gone))
        self.labels[moved] = into
        self.home[np.isin(self.home, list(gone))] = into
        self.clusters = [cluster for cluster in self.clusters if cluster not in gone]
        for cluster in gone:
            self.names.pop(cluster, None)
        return f"merged {merged} into {self._called(into)}: {int(moved.sum()):,} samples moved"

    def _split(self, cluster: int, parts: str, count: int) -> str:
        members = self.members(self._cluster(cluster))
        part = parts_of(parts, len(members))
        sizes = np.bincount(part)
        if len(sizes) != count or not sizes.all():
            raise InputError(f"the parts do not fit the {len(members)} members of {cluster}.")
        new = [cluster, *range(self.next_cluster, self.next_cluster + count - 1)]
        self.labels[members] = np.array(new, dtype=np.int32)[part]
        self.next_cluster += count - 1
        self.clusters += new[1:]
        parts = ", ".join(f"{size:,}" for size in sizes)
        are = "one is cluster" if count == 2 else "ones are clusters"
        numbers = ", ".join(map(str, new[1:]))
        return f"split {self._called(cluster)} into parts of {parts}; the new {are} {numbers}"

    def _move(self, samples: list[int], cluster: int) -> str:
        rows, cluster = self._samples(samples), self._cluster(cluster)
        self.labels[rows] = cluster
        self.moved.update(rows.tolist())
        return f"moved {_counted(rows)} to {self._called(cluster)}"

    def _flag(self, samples: list[int], flagged: bool) -> str:
        rows = self._samples(samples)
        if flagged:
            self.flagged.update(rows.tolist())
            return f"flagged {_counted(rows)} as wrong"
        self.flagged.difference_update(rows.tolist())
        return f"took the flag from {_counted(rows)}"


def _counted(rows: NDArray) -> str:
    return f"sample {rows[0]}" if len(rows) == 1 else f"{len(rows):,} samples"


def letters(part: NDArray) -> str:
    """The part that each member goes to as text for the journal: a letter per member."""
    return (part + _FIRST).astype(np.uint8).tobytes().decode()


def parts_of(text: str, count: int) -> NDArray:
    """The parts of `count` members from the `letters` of them."""
    if len(text) != count or not text.isascii():
        raise InputError(f"the parts of a split are not the letters of its {count} members.")
    return np.frombuffer(text.encode(), np.uint8) - _FIRST
