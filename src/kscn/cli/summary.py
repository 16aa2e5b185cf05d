"""The short texts that commands end with: cluster sizes, scores, confusion, what comes next."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from kscn.cli.terminal import printable, styled, table
from kscn.report import words
from kscn.runs.directory import CONFIG, HISTORY, LABELS, LEFT_OUT, MODEL

if TYPE_CHECKING:
    from kscn.metrics import ConfusionMatrix

_SHOWN = 20  # clusters or classes at most
_BAR = 32
_LABEL = 13  # columns of text before what is said of it


def run_summary(config: Mapping[str, Any], result: Mapping[str, Any]) -> list[Any]:
    """What a run found: sizes of the clusters, how sure they are, scores if labels are known."""
    data, about, sizes = config["data"], config["run"], result["sizes"]
    shape, encoder = data["shape"], words.encoder(config)
    sample = f"{shape[0]} features" if len(shape) == 1 else " x ".join(map(str, shape))
    samples = "images" if encoder else f"samples of {sample}"
    facts = {
        "encoder": encoder,
        "method": about["method"] + (f", preset {about['preset']}" if about.get("preset") else ""),
        "confidence": words.confidence(result),
    }
    if result["objective"] is not None:
        unit, count = result.get("unit", "iterations"), result["iterations"]
        unit = unit.removesuffix("s") if count == 1 else unit
        facts["objective"] = f"{result['objective']:.6g}" + (f" after {count} {unit}" * bool(count))
    facts["time"] = words.duration(result["seconds"])
    if data.get("left_out"):
        facts["left out"] = f"{data['left_out']} files that cannot be read, see {LEFT_OUT}"
    if result["seed"] is not None:
        facts["seed"] = str(result["seed"])
    if result["scores"] is not None:
        facts["scores"] = score_line(result["scores"])
    doubts = {"caution": words.caution(result)}
    clusters = _clusters(len(sizes), result["dims"])
    return [
        styled(f"{data['name']}: {data['samples']:,} {samples} in {clusters}", "bold"),
        "",
        *size_table(sizes),
        "",
        *(styled(line, "yellow") for line in fact_lines(doubts)),
        *fact_lines(facts),
    ]


def fact_lines(facts: Mapping[str, str]) -> list[str]:
    """Names and what there is to say of each, in as many lines as it takes; nothing for ""."""
    lines = []
    width = max(40, shutil.get_terminal_size().columns - _LABEL)
    for name, text in facts.items():
        for i, line in enumerate(wrap(printable(text), width)):
            lines.append(f"  {'' if i else name:<{_LABEL - 2}}{line}")
    return lines


def _clusters(n_clusters: int, dims: Sequence[int]) -> str:
    if not dims:
        return f"{n_clusters} clusters"
    least, most = min(dims), max(dims)
    dimension = f"{least}" if least == most else f"{least} to {most}"
    return f"{n_clusters} subspaces of dimension {dimension}"


def size_table(sizes: Sequence[int]) -> list[Any]:
    """A bar for every cluster, the largest first as they are numbered."""
    from rich.bar import Bar

    total, largest = max(1, sum(sizes)), max([1, *sizes])
    made = table("cluster", "size", "share", "")
    for i, size in enumerate(sizes[:_SHOWN]):
        bar = Bar(largest, 0, size, width=_BAR, color="cyan")
        made.add_row(str(i), f"{size:,}", f"{size / total:.1%}", bar)
    rest = sizes[_SHOWN:]
    more = f"  ... and {len(rest)} more clusters with {sum(rest):,} samples"
    return [made, more] if rest else [made]


def score_line(scores: Mapping[str, float]) -> str:
    """ACC, NMI and ARI side by side."""
    return "   ".join(f"{name.upper()} {scores[name]:.4f}" for name in ("acc", "nmi", "ari"))


def confusion_table(confusion: "ConfusionMatrix") -> Any:
    """Rows are classes, columns clusters; the matched count of every class is in brackets."""
    rows, columns = confusion.counts.shape
    if max(rows, columns) > _SHOWN:
        return f"  {rows} classes by {columns} clusters is too much to show; --json prints it."
    clusters = [str(cluster).replace("-1", "noise") for cluster in confusion.clusters]
    made = table("class \\ cluster", *(f"{cluster} " for cluster in clusters))
    for row, name in enumerate(confusion.classes):
        counts = zip(confusion.counts[row], confusion.matches, strict=True)
        cells = [f"[{n}]" if match == row else f"{n or '.'} " for n, match in counts]
        made.add_row(printable(str(name)), *cells)
    return made


def next_lines(output: Path, config: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    """What was written and what to type next, as it can be pasted into a shell."""
    run = shlex.quote(str(output))
    labels = "" if result["scores"] is not None else " --labels y.npy"
    steps = [
        (f"report {run}", "one page that shows what was found"),
        (f"explore {run}", "browse and correct the clusters"),
        (f"evaluate {run}{labels}", "scores against known classes"),
        (f"predict {run} NEW_DATA -o labels.csv", "clusters of new samples"),
    ]
    if config["data"].get("files"):
        steps.insert(2, (f"sort {run} -o sorted", "the files in one folder per cluster"))
    width = max(len(step) for step, _ in steps)
    return [
        f"wrote {output}/: {MODEL}/  {LABELS}  {HISTORY}  {CONFIG}",
        "next:",
        *(f"  kscn {step:<{width}}  # {what}" for step, what in steps),
    ]
