"""What `KSCNPlus` tried, as plain values that checkpoints and the files of a run can hold."""

from __future__ import annotations

from typing import Any

from kscn.estimators.select import CONSENSUS, Scored, Selection

# Candidates that are kept, of several dozen.
MOST = 10


def summary(selection: Selection) -> dict[str, Any]:
    """The clustering taken, its best rival of another kind, and the best of all that were tried."""
    best, tried = selection.best, selection.tried
    others = [entry for entry in tried if entry.candidate.kind != best.candidate.kind]
    spaces = {entry.candidate.space for entry in tried if entry.candidate.kind != CONSENSUS}
    return {
        **_row(best),
        "rival": _row(others[0]) if others else None,
        "candidates": len(tried),
        "spaces": len(spaces),
        "tried": [_row(entry) for entry in tried[:MOST]],
    }


def _row(entry: Scored) -> dict[str, Any]:
    return {
        "space": entry.candidate.space,
        "method": entry.candidate.method,
        "consistency": round(entry.value, 4),
    }
