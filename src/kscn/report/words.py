"""What a run found in words, on the terminal and on pages alike: times, encoders, choices.

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


def duration(seconds: float) -> str:
    """Time for people: 0.31 s, 12.4 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def confidence(result: Mapping[str, Any]) -> str:
    """How sure the clusters of a run are, in a sentence without its full stop; "" if not known."""
    chosen = result.get("chosen")
    if chosen is None:
        return ""
    value = chosen["consistency"]
    meaning = _CLEAR if value >= CLEAR else _MODERATE if value >= MODERATE else _LOW
    return f"members find back to their cluster: {value:.2f}; {meaning}"


def caution(result: Mapping[str, Any]) -> str:
    """That the clusters of a run may mean little, without a full stop; "" unless it is so."""
    chosen = result.get("chosen")
    if chosen is None or chosen["consistency"] >= MODERATE:
        return ""
    return (
        f"low self-consistency, {chosen['consistency']:.2f} of 1: members often do not find back "
        "to their cluster, so the groups may mean little; look at them before you rely on them"
    )


def choice(result: Mapping[str, Any]) -> dict[str, str]:
    """What was tried, what was chosen and why, and how sure that is, by name; {} if not known."""
    chosen = result.get("chosen")
    if chosen is None:
        return {}
    refined = ", then refined by a network" if chosen["refined"] else ""
    return {
        "tried": f"{chosen['candidates']} clusterings in {chosen['spaces']} representations",
        "chosen": clustering(chosen) + refined,
        "because": _reason(chosen),
        "confidence": confidence(result),
    }


def _reason(chosen: Mapping[str, Any]) -> str:
    text, rival = f"self-consistency {chosen['consistency']:.3f}", chosen["rival"]
    if rival is not None:
        text += f"; best of another kind {rival['consistency']:.3f}, {clustering(rival)}"
        if rival["consistency"] >= chosen["consistency"]:
            text += "; up to chance they are equal, and what several have in common goes first"
    return text


def clustering(entry: Mapping[str, Any]) -> str:
    """A clustering by the method and the space that it comes from."""
    method = ", ".join(_WORDS.get(part, part) for part in entry["method"].split(", "))
    return method if entry["space"] == _ALL else f"{method} ({entry['space']})"


def encoder(config: Mapping[str, Any]) -> str:
    """The encoder of a run, by its name and the start of its checksum; "" if it has none."""
    about = config.get("encoder")
    if about is None:
        return ""
    name = about["name"]
    short = name.replace("\\", "/").rpartition("/")[2] if name.lower().endswith(".onnx") else name
    return f"{short}, sha256 {about['sha256'][:12]}"
