"""How a choice among clusterings is told in words, on the terminal and on pages alike.

A choice is plain values, as the result of a run holds them: `method` and `space` of the clustering
that was taken and its `consistency`; how many `candidates` were tried in how many `spaces`, and the
best of them, `tried`; the `rival`, the best of another kind; whether it was `refined`. Methods that
make no such choice leave it out.
"""

from collections.abc import Mapping
from typing import Any

# From where on members find back well, and from where on well enough to go by.
CLEAR, MODERATE = 0.75, 0.5
_CLEAR = "the groups are clearly separated"
_MODERATE = "moderate: some groups run into each other, look at their borderline members"
_LOW = (
    "low: the groups are not clearly separated in any of the representations tried, treat them "
    "with care"
)
# Parts of the names of methods that say little by themselves, and the space of what is in none.
_WORDS = {
    "consensus": "what all candidates have in common",
    "settled": "assigned anew by subspaces",
    "shortest code": "flat clusters with the shortest code",
}
_ALL = "all"
# Candidates that a summary keeps, of several dozen.
SUMMARISED = 10


def summary(selection: Any) -> dict[str, Any]:
    """A `Selection` of `KSCNPlus` as plain values, which checkpoints and runs can hold."""
    best, tried = selection.best, selection.tried
    others = [entry for entry in tried if entry.candidate.kind != best.candidate.kind]
    spaces = {entry.candidate.space for entry in tried if not entry.common}
    return {
        **_row(best),
        "rival": _row(others[0]) if others else None,
        "candidates": len(tried),
        "spaces": len(spaces),
        "tried": [_row(entry) for entry in tried[:SUMMARISED]],
    }


def _row(entry: Any) -> dict[str, Any]:
    return {
        "space": entry.candidate.space,
        "method": entry.candidate.method,
        "consistency": round(entry.value, 4),
    }


def duration(seconds: float) -> str:
    """Time for people: 0.31 s, 12.4 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def meaning(confidence: float) -> str:
    """What a confidence says about the groups."""
    return _CLEAR if confidence >= CLEAR else _MODERATE if confidence >= MODERATE else _LOW


def confidence(result: Mapping[str, Any]) -> str:
    """How sure the clusters of a run are, in a sentence without its full stop; "" if not known."""
    choice = result.get("chosen")
    if choice is None:
        return ""
    value = choice["consistency"]
    return f"members find back to their cluster: {value:.2f}; {meaning(value)}"


def caution(result: Mapping[str, Any]) -> str:
    """That the clusters of a run may mean little, without a full stop; "" unless it is so."""
    choice = result.get("chosen")
    if choice is None or choice["consistency"] >= MODERATE:
        return ""
    return (
        f"low self-consistency, {choice['consistency']:.2f} of 1: members often do not find back "
        "to their cluster, so the groups may mean little; look at them before you rely on them"
    )


def told(result: Mapping[str, Any]) -> dict[str, str]:
    """What was tried, what was chosen and why, and how sure that is, by name; {} if not known."""
    choice = result.get("chosen")
    if choice is None:
        return {}
    return {
        "tried": f"{choice['candidates']} clusterings in {choice['spaces']} representations",
        "chosen": called(choice) + (", then refined by a network" if choice["refined"] else ""),
        "because": _reason(choice),
        "confidence": confidence(result),
    }


def encoder(config: Mapping[str, Any]) -> str:
    """The encoder of a run, by its name and the start of its checksum; "" if it has none."""
    about = config.get("encoder")
    if about is None:
        return ""
    name = about["name"]
    short = name.replace("\\", "/").rpartition("/")[2] if name.lower().endswith(".onnx") else name
    return f"{short}, sha256 {about['sha256'][:12]}"


def called(entry: Mapping[str, Any]) -> str:
    """A clustering by the method and the space that it comes from."""
    method = ", ".join(_WORDS.get(part, part) for part in entry["method"].split(", "))
    return method if entry["space"] == _ALL else f"{method} ({entry['space']})"


def _reason(choice: Mapping[str, Any]) -> str:
    own, rival = choice["consistency"], choice["rival"]
    text = f"self-consistency {own:.3f}"
    if rival is None:
        return text
    text += f"; best of another kind {rival['consistency']:.3f}, {called(rival)}"
    if choice["method"].endswith("shortest code"):
        text += "; but low-dimensional subspaces leave hardly anything of what was chosen"
    elif rival["consistency"] >= own:
        text += "; up to chance they are equal, and what several have in common goes first"
    return text
