"""Edits with undo and redo, kept in a journal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from kscn.errors import InputError, KscnError, ModelFileError
from kscn.web.grouping import Grouping
from kscn.web.journal import Journal


def open_editor(run: Path, labels: NDArray, n_clusters: int) -> Editor:
    """The clusters of a run with all edits that the explorer has kept beside it.

    Parameters
    ----------
    run : Path
        The run directory.
    labels : ndarray of int32, shape (n,)
        Its labels; -1 for none.
    n_clusters : int
        How many clusters it has.
    """
    digest = hashlib.sha256(labels.tobytes()).hexdigest()
    about = {"samples": len(labels), "labels_sha256": digest}
    return Editor(labels, n_clusters, Journal(run / "explore" / "edits.jsonl", about))


class Editor:
    """The grouping after all edits in a journal, and the way to make more.

    Undoing is an entry of the journal too: what was done is never erased from it.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        The clusters of the run.
    n_clusters : int
        How many it has.
    journal : Journal
        Edits made before; further ones are added to it.

    Attributes
    ----------
    grouping : Grouping
        The clusters now.
    revision : int
        Counts the entries of the journal: what is shown of an older one is out of date.
    """

    def __init__(self, labels: NDArray, n_clusters: int, journal: Journal) -> None:
        self._labels, self._n_clusters = labels, n_clusters
        self._journal = journal
        self._done: list[Mapping[str, Any]] = []
        self._undone: list[Mapping[str, Any]] = []
        self.grouping = self._folded()
        self.revision = len(journal.entries)
        self._replay(journal.entries)

    def close(self) -> None:
        """Let others edit."""
        self._journal.close()

    def _replay(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Make the edits that no later entry takes back; a fold for each undo takes minutes."""
        done: list[tuple[int, Mapping[str, Any]]] = []
        undone: list[tuple[int, Mapping[str, Any]]] = []
        for number, entry in enumerate(entries, 2):
            kind = entry.get("edit")
            if kind in ("undo", "redo"):
                source, target = (done, undone) if kind == "undo" else (undone, done)
                if not source:
                    raise self._misfit(number, f"there is nothing to {kind}.")
                target.append(source.pop())
            else:
                done.append((number, entry))
                undone.clear()
        for number, entry in done:
            try:
                self.grouping.apply(entry)
            except KscnError as error:
                raise self._misfit(number, error) from None
        self._done = [entry for _, entry in done]
        self._undone = [entry for _, entry in undone]

    def _misfit(self, number: int, why: object) -> ModelFileError:
        return ModelFileError(
            f"line {number} of {self._journal.path} does not fit the lines before ({why}); "
            "repair it, or move the file away to begin anew."
        )

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
        if entry.get("edit") in ("undo", "redo"):
            entry = {"edit": entry["edit"]}
        before = list(self._done), list(self._undone), self.revision
        said = self._take(entry)
        try:
            self._journal.append(entry)
        except KscnError:  # it is not on disk, so it did not happen
            self._done, self._undone, self.revision = before
            self.grouping = self._folded()
            raise
        return said

    def _take(self, entry: Mapping[str, Any]) -> str:
        kind = entry.get("edit")
        if kind == "undo":
            if not self._done:
                raise InputError("there is nothing to undo.")
            self._undone.append(self._done.pop())
            self.grouping = self._folded()
            said = f"took back the last edit ({self._undone[-1]['edit']})"
        elif kind == "redo":
            if not self._undone:
                raise InputError("there is nothing to redo.")
            said = self.grouping.apply(self._undone[-1])
            self._done.append(self._undone.pop())
        else:
            said = self.grouping.apply(entry)
            self._done.append(dict(entry))
            self._undone.clear()
        self.revision += 1
        return said

    def _folded(self) -> Grouping:
        grouping = Grouping(self._labels, self._n_clusters)
        for edit in self._done:
            grouping.apply(edit)
        return grouping
