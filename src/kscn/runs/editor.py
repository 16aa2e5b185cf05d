"""Clusters as people change them: names, merges, splits, moved and flagged samples, with undo.

A grouping is a fold of edits over the labels of a run. Edits are plain dictionaries, the lines of
the journal; `Grouping.apply` checks one against the present grouping before it changes anything.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscn.errors import InputError, KscnError, ModelFileError
from kscn.runs.journal import Journal

LONGEST_NAME = 100
# Samples that are in no cluster, as some methods leave them.
NONE = -1


def open_editor(run: Path, labels: NDArray, n_clusters: int) -> Editor:
    """The clusters of a run directory with all edits that the explorer has kept beside it.

    `labels` are those of the run as int32, -1 for none; empty clusters count in `n_clusters`.
    """
    digest = hashlib.sha256(labels.tobytes()).hexdigest()
    about = {"samples": len(labels), "labels_sha256": digest}
    return Editor(labels, n_clusters, Journal(run / "explore" / "edits.jsonl", about))


class Editor:
    """The clusters after all edits in a journal (`grouping`), and the way to make more.

    Undoing is an entry of the journal too: what was done is never erased from it. `revision` counts
    its entries: what is shown of an older one is out of date.
    """

    def __init__(self, labels: NDArray, n_clusters: int, journal: Journal) -> None:
        self._labels, self._n_clusters = labels, n_clusters
        self._journal = journal
        self._done: list[Mapping[str, Any]] = []
        self._undone: list[Mapping[str, Any]] = []
        self.revision = len(journal.entries)
        self.grouping = self._replayed()

    def _replayed(self) -> Grouping:
        """Make the edits that no later entry takes back; a fold for each undo takes minutes."""
        grouping = Grouping(self._labels, self._n_clusters)
        entry: Mapping[str, Any] = {}
        try:
            for entry in self._journal.entries:
                self._step(entry)
            for entry in self._done:
                grouping.apply(entry)
        except KscnError as error:
            lines = enumerate(self._journal.entries, 2)
            line = next(number for number, known in lines if known is entry)
            raise ModelFileError(
                f"line {line} of {self._journal.path} does not fit the lines before ({error}); "
                "repair it, or move the file away to begin anew."
            ) from None
        return grouping

    def close(self) -> None:
        """Let others edit."""
        self._journal.close()

    @property
    def can_undo(self) -> bool:
        """Whether there is an edit to take back."""
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        """Whether there is an undone edit to make again."""
        return bool(self._undone)

    def make(self, entry: Mapping[str, Any]) -> str:
        """Make an edit, or `{"edit": "undo"}` or `{"edit": "redo"}`; say what was done."""
        kind = entry.get("edit")
        entry = {"edit": kind} if kind in ("undo", "redo") else dict(entry)
        done, undone, said = list(self._done), list(self._undone), ""
        self._step(entry)
        try:
            if kind == "undo":
                self.grouping = self._folded()
                said = f"took back the last edit ({self._undone[-1]['edit']})"
            else:
                said = self.grouping.apply(self._done[-1])
            self._journal.append(entry)
        except KscnError:
            self._done, self._undone = done, undone
            if said:  # it was made, but is not on disk: so it did not happen
                self.grouping = self._folded()
            raise
        self.revision += 1
        return said

    def _step(self, entry: Mapping[str, Any]) -> None:
        """Bring the lists of edits that are done and undone up to date."""
        kind = entry.get("edit")
        if kind not in ("undo", "redo"):
            self._done.append(entry)
            self._undone.clear()
            return
        source, target = self._done, self._undone
        if kind == "redo":
            source, target = target, source
        if not source:
            raise InputError(f"there is nothing to {kind}.")
        target.append(source.pop())

    def _folded(self) -> Grouping:
        grouping = Grouping(self._labels, self._n_clusters)
        for edit in self._done:
            grouping.apply(edit)
        return grouping


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
        found = {cluster: int(counts[cluster + 1]) for cluster in self.clusters}
        return found | ({NONE: int(counts[0])} if counts[0] else {})

    def apply(self, edit: Mapping[str, Any]) -> str:
        """Make an edit and say what was done, or in one sentence why it cannot be made."""
        kinds: dict[str, Callable[..., str]] = {
            "name": self._name,
            "merge": self._merge,
            "split": self._split,
            "move": self._move,
            "flag": self._flag,
        }
        kind = edit.get("edit")
        if not isinstance(kind, str) or kind not in kinds:
            raise InputError(f"there is no edit {kind!r}; use one of {', '.join(kinds)}.")
        try:
            return kinds[kind](**{name: value for name, value in edit.items() if name != "edit"})
        except TypeError as error:
            raise InputError(f"the edit {kind!r} is not complete ({error}).") from None

    def _called(self, cluster: int) -> str:
        return f"“{self.names[cluster]}”" if cluster in self.names else f"cluster {cluster}"

    def _cluster(self, cluster: Any) -> int:
        if cluster not in self.clusters or isinstance(cluster, bool):
            raise InputError(
                f"there is no cluster {cluster!r}; look at the list, it may have been merged."
            )
        return int(cluster)

    def _samples(self, samples: Any) -> NDArray:
        try:
            rows = np.asarray(samples)
        except ValueError:  # lists of different lengths in a list
            rows = np.empty(0)
        if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
            raise InputError("samples must be a list of one or more indices.")
        outside = (rows < 0) | (rows >= len(self.labels))
        if outside.any():
            raise InputError(
                f"there are samples 0 to {len(self.labels) - 1}, and not {rows[outside][0]}."
            )
        return np.unique(rows)

    def _name(self, cluster: int, name: str) -> str:
        cluster = self._cluster(cluster)
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise InputError(f"a name must be text of at most {LONGEST_NAME} characters.")
        name = " ".join(name.split())
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
        into = self._cluster(into)
        if not isinstance(clusters, list) or not clusters:
            raise InputError("clusters must be a list of those to merge.")
        gone = {self._cluster(cluster) for cluster in clusters}
        if into in gone:
            raise InputError(f"cluster {into} cannot be merged into itself; choose another.")
        told = ", ".join(self._called(cluster) for cluster in sorted(gone))
        moved = np.isin(self.labels, list(gone))
        self.labels[moved] = into
        self.home[np.isin(self.home, list(gone))] = into
        self.clusters = [cluster for cluster in self.clusters if cluster not in gone]
        for cluster in gone:
            self.names.pop(cluster, None)
        return f"merged {told} into {self._called(into)}: {int(moved.sum()):,} samples moved"

    def _split(self, cluster: int, parts: str, count: int) -> str:
        members = self.members(self._cluster(cluster))
        part = unpacked(parts, len(members))
        sizes = np.bincount(part)
        if type(count) is not int or count < 2 or len(sizes) != count or not sizes.all():
            raise InputError(f"the parts do not fit the {len(members)} members of {cluster}.")
        new = [cluster, *range(self.next_cluster, self.next_cluster + count - 1)]
        self.labels[members] = np.array(new, dtype=np.int32)[part]
        self.next_cluster += count - 1
        self.clusters += new[1:]
        told = ", ".join(f"{size:,}" for size in sizes)
        are = "one is cluster" if count == 2 else "ones are clusters"
        numbers = ", ".join(map(str, new[1:]))
        return f"split {self._called(cluster)} into parts of {told}; the new {are} {numbers}"

    def _move(self, samples: list[int], cluster: int) -> str:
        rows, cluster = self._samples(samples), self._cluster(cluster)
        self.labels[rows] = cluster
        self.moved.update(rows.tolist())
        return f"moved {_counted(rows)} to {self._called(cluster)}"

    def _flag(self, samples: list[int], flagged: bool) -> str:
        rows = self._samples(samples)
        if not isinstance(flagged, bool):
            raise InputError("flagged must be true or false.")
        if flagged:
            self.flagged.update(rows.tolist())
            return f"flagged {_counted(rows)} as wrong"
        self.flagged.difference_update(rows.tolist())
        return f"took the flag from {_counted(rows)}"


def _counted(rows: NDArray) -> str:
    return f"sample {rows[0]}" if len(rows) == 1 else f"{len(rows):,} samples"


def packed(part: NDArray) -> str:
    """The part that each member goes to, as text for the journal."""
    return base64.b64encode(zlib.compress(part.astype(np.uint8).tobytes(), 9)).decode()


def unpacked(text: str, count: int) -> NDArray:
    """What `packed` packed of `count` members; no more than that is ever unpacked."""
    try:
        content = zlib.decompressobj()
        part = content.decompress(base64.b64decode(text, validate=True), count + 1)
    except (binascii.Error, zlib.error, ValueError, TypeError):
        raise InputError("the parts of a split cannot be read.") from None
    if len(part) != count or not content.eof:
        raise InputError(f"the parts of a split are not those of its {count} members.")
    return np.frombuffer(part, np.uint8)
