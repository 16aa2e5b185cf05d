"""Live progress on stderr: bars on a terminal, and silence elsewhere."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from kscn.cli.terminal import styled


class _LiveBars(Progress):
    """Bars that are on screen while the context is open and leave nothing behind."""

    def __init__(self, *columns: ProgressColumn) -> None:
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),  # all columns together fit into 80 characters
            *columns,
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )


# What a stage of the history is called on screen; a stage that is not here goes by its own name.
_STAGES = {
    "embed": "embedding",
    "pretrain": "pretraining",
    "search": "trying starts",
    "settle": "comparing the best starts",
    "grow": "growing the subspaces",
    "start": "starting",
    "fit": "fitting",
}
# How a record says how far its stage is: what is done and of how many.
_COUNTERS = (("epoch", "epochs"), ("round", "rounds"), ("iteration", "max_iter"))


class FitProgress(_LiveBars):
    """Callback of an estimator: a bar for every stage of the fit."""

    def __init__(self) -> None:
        note = TextColumn("{task.fields[note]}", markup=False)
        super().__init__(note, TimeRemainingColumn(compact=True))
        self._stage = "preparing"
        self._bar = self.add_task(self._stage, total=None, note="")

    def __call__(self, estimator: Any, record: dict[str, Any]) -> None:
        """Draw one record of the history, if it says how far its stage is."""
        for done, total in _COUNTERS:
            if done in record and total in record:
                self.draw(str(record["stage"]), record[done], record[total], _note(record))
                return

    def draw(self, stage: str, done: int, total: int, note: str) -> None:
        """Draw how far a stage is."""
        if stage != self._stage:  # a bar of its own, so that the time left is that of the stage
            self.remove_task(self._bar)
            self._stage = stage
            self._bar = self.add_task(_STAGES.get(stage, stage), total=total, note=note)
        self.update(self._bar, completed=done, total=total, note=note)

    def embedding(self, done: int, total: int) -> None:
        """Draw how many images an encoder has taken."""
        self.draw("embed", done, total, f"{done:,} of {total:,}")


def _note(record: dict[str, Any]) -> str:
    """The figures of a record that tell whether the fit gets anywhere."""
    words = {"objective": "objective {:.5g}", "reconstruction": "error {:.5g}"}
    parts = [text.format(record[name]) for name, text in words.items() if name in record][:1]
    if record.get("changed") is not None:
        parts.append(f"{record['changed']:.1%} moved")
    return "  ".join(parts)


class FetchProgress(_LiveBars):
    """Progress of a fetched data set, one bar per file."""

    def __init__(self) -> None:
        super().__init__(DownloadColumn(), TimeRemainingColumn())
        self._files: dict[str, TaskID] = {}

    def __call__(self, file: str, done: int, total: int) -> None:
        """Draw how many bytes of a file have arrived."""
        if file not in self._files:
            self._files[file] = self.add_task(file, total=total)
        self.update(self._files[file], completed=done)


def working(text: str) -> AbstractContextManager[object]:
    """A spinner with a text, for work that cannot tell how far it is."""
    if not sys.stderr.isatty():
        return nullcontext()
    return Console(stderr=True).status(styled(text, ""))
