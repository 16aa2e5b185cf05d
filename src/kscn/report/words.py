"""What pages and the terminal alike say of a run: its time, its encoder, how sure it is."""

from collections.abc import Mapping
from typing import Any

_DOUBTFUL = 0.5  # a self-consistency below this is a reason for caution


def duration(seconds: float) -> str:
    """Time for people: 0.31 s, 12.4 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def confidence(result: Mapping[str, Any]) -> str:
    """How sure the clusters of a run are, in a phrase; "" if that is not known."""
    chosen = result.get("chosen")
    if chosen is None:
        return ""
    return f"members find back to their cluster: {chosen['consistency']:.2f} of 1"


def caution(result: Mapping[str, Any]) -> str:
    """That the clusters of a run may mean little, without a full stop; "" unless it is so."""
    chosen = result.get("chosen")
    if chosen is None or chosen["consistency"] >= _DOUBTFUL:
        return ""
    return (
        f"low self-consistency, {chosen['consistency']:.2f} of 1: members often do not find back "
        "to their cluster, so the groups may mean little; look at them before you rely on them"
    )


def encoder(config: Mapping[str, Any]) -> str:
    """The encoder of a run, by its name and the start of its checksum; "" if it has none."""
    about = config.get("encoder")
    if about is None:
        return ""
    name = about["name"]
    short = name.replace("\\", "/").rpartition("/")[2] if name.lower().endswith(".onnx") else name
    return f"{short}, sha256 {about['sha256'][:12]}"
