"""The short texts that commands end with: cluster sizes, scores, confusion, what comes next."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from kscn import chosen
from kscn.chosen import duration
from kscn.cli.rundir import CONFIG, HISTORY, LABELS, LEFT_OUT, MODEL
from kscn.cli.terminal import Terminal, printable, table

if TYPE_CHECKING:
    from kscn.metrics import ConfusionMatrix

_SHOWN = 20  # clusters or classes at most
_BAR = 32
_LABEL = 13  # columns of text before what is told


def run_lines(
    terminal: Terminal, config: Mapping[str, Any], result: Mapping[str, Any]
) -> list[str]:
    """What a run found: sizes of the clusters, how they were chosen, scores if labels are known."""
    data, about, sizes = config["data"], config["run"], result["sizes"]
    shape = data["shape"]
    sample = f"{shape[0]} features" if len(shape) == 1 else " x ".join(map(str, shape))
    encoder = chosen.encoder(config)
    samples = "images" if encoder else f"samples of {sample}"
    preset = f", preset {about['preset']}" if about.get("preset") else ""
    lines = [
        terminal.style(
            f"{data['name']}: {data['samples']:,} {samples} in "
            f"{_found(len(sizes), result['dims'])}",
            bold=True,
        ),
        "",
        *size_lines(terminal, sizes),
        "",
        *_empty_lines(terminal, sizes),
        *_caution_lines(terminal, result),
        *([printable(f"  encoder    {encoder}")] if encoder else []),
        printable(f"  method     {about['method']}{preset}"),
        *chosen_lines(terminal, result),
    ]
    if result["objective"] is not None:
        unit, count = result.get("unit", "iterations"), result["iterations"]
        unit = unit.removesuffix("s") if count == 1 else unit
        after = f" after {count} {unit}" if count else ""
        lines.append(f"  objective  {result['objective']:.6g}{after}")
    lines.append(f"  time       {duration(result['seconds'])}")
    if data.get("left_out"):
        lines.append(f"  left out   {data['left_out']} files that cannot be read, see {LEFT_OUT}")
    if result["seed"] is not None:
        lines.append(f"  seed       {result['seed']}")
    if result["scores"] is not None:
        lines.append(f"  scores     {score_line(result['scores'])}")
    return lines


def chosen_lines(terminal: Terminal, result: Mapping[str, Any]) -> list[str]:
    """What was tried and taken, where a method chooses by itself, and how sure that is."""
    lines = []
    for name, text in chosen.told(result).items():
        lines += _told_lines(terminal, name, text)
    return lines


def _told_lines(terminal: Terminal, name: str, text: str) -> list[str]:
    first, *rest = wrap(printable(text), max(40, terminal.width - _LABEL))
    return [f"  {name:<{_LABEL - 2}}{first}", *(" " * _LABEL + line for line in rest)]


def _caution_lines(terminal: Terminal, result: Mapping[str, Any]) -> list[str]:
    """That the clusters may mean little, where it is so."""
    text = chosen.caution(result)
    lines = _told_lines(terminal, "caution", text) if text else []
    return [terminal.style(line, fg="yellow") for line in lines]


def _empty_lines(terminal: Terminal, sizes: Sequence[int]) -> list[str]:
    """That fewer clusters were found than asked for, where it is so."""
    empty = sum(size == 0 for size in sizes)
    if not empty:
        return []
    have = "has" if empty == 1 else "have"
    line = f"  empty      {empty} of {len(sizes)} clusters {have} no samples; ask for fewer with -k"
    return [terminal.style(line, fg="yellow")]


def _found(n_clusters: int, dims: Sequence[int]) -> str:
    if not dims:
        return f"{n_clusters} clusters"
    least, most = min(dims), max(dims)
    dimension = f"{least}" if least == most else f"{least} to {most}"
    return f"{n_clusters} subspaces of dimension {dimension}"


def size_lines(terminal: Terminal, sizes: Sequence[int]) -> list[str]:
    """A bar for every cluster, the largest first as they are numbered."""
    total, largest = max(1, sum(sizes)), max([1, *sizes])
    rows = [[str(i), f"{size:,}", f"{size / total:.1%}"] for i, size in enumerate(sizes[:_SHOWN])]
    head, *lines = table(["cluster", "size", "share"], rows)
    bars = (terminal.bar(size / largest, _BAR) for size in sizes)
    lines = [
        f"{line}  {terminal.style(bar, fg='cyan')}".rstrip()
        for line, bar in zip(lines, bars, strict=False)
    ]
    rest = sizes[_SHOWN:]
    if rest:
        lines.append(f"  ... and {len(rest)} more clusters with {sum(rest):,} samples")
    return [head, *lines]


def score_line(scores: Mapping[str, float]) -> str:
    """ACC, NMI and ARI side by side."""
    return "   ".join(f"{name.upper()} {scores[name]:.4f}" for name in ("acc", "nmi", "ari"))


def confusion_lines(confusion: "ConfusionMatrix") -> list[str]:
    """Rows are classes, columns clusters; the matched count of every class is in brackets."""
    if max(confusion.counts.shape) > _SHOWN:
        rows, columns = confusion.counts.shape
        return [f"  {rows} classes by {columns} clusters is too much to show; --json prints it."]
    corner = "class \\ cluster"
    header = [corner, *("noise" if str(c) == "-1" else str(c) for c in confusion.clusters)]
    rows = [
        [
            str(name),
            *(
                f"[{count}]" if match == row else f"{count or '.'} "
                for count, match in zip(confusion.counts[row], confusion.matches, strict=True)
            ),
        ]
        for row, name in enumerate(confusion.classes)
    ]
    header = [corner, *(f"{cell} " for cell in header[1:])]
    return table(header, rows)


def next_lines(output: Path, config: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    """What was written and what to type next, as it can be pasted into a shell."""
    run = shlex.quote(str(output))
    labels = "" if result["scores"] is not None else " --labels y.npy"
    steps = [
        (f"report {run}", "one page that shows what was found"),
        (f"explore {run}", "browse and correct the clusters"),
        (f"evaluate {run}{labels}", "scores against known classes"),
    ]
    if config["data"].get("files"):
        steps.insert(2, (f"sort {run} -o sorted", "the files in one folder per cluster"))
    if config["run"]["model"]:
        wrote = [f"wrote {output}/: {MODEL}/  {LABELS}  {HISTORY}  {CONFIG}"]
        steps.append((f"predict {run} NEW_DATA -o labels.csv", "clusters of new samples"))
    else:
        wrote = [
            f"wrote {output}/: {LABELS}  {HISTORY}  {CONFIG}",
            f"no model: {config['run']['method']} keeps nothing that could label new samples",
        ]
    width = max(len(step) for step, _ in steps)
    return [*wrote, "next:", *(f"  kscn {step:<{width}}  # {what}" for step, what in steps)]
