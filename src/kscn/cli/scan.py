"""`kscn scan`: curves over the number of subspaces and their dimension, and a recommendation."""

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kscn.atomicfile import atomic_file
from kscn.chosen import duration
from kscn.cli.options import SPAN, device_option, folder_options, json_option, output_option
from kscn.cli.rundata import open_data, say_left_out
from kscn.cli.terminal import Terminal, table
from kscn.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kscn.data import Source
    from kscn.experiments.scan import Scan

NO_PROMISE = "No promise of truth: this is what a subsample supports. Look at the clusters too."
_BAR = 20
_INK, _ACCENT, _GREY = "#3f90da", "#bd1f01", "#94a4a2"


@click.command("scan", short_help="Look for the number of subspaces and their dimension.")
@click.argument("data")
@click.option(
    "-k", "--clusters", type=SPAN, help="Numbers of clusters to try; 2:20 if the data allows it."
)
@click.option("-p", "--dims", type=SPAN, help="Dimensions to try; 1:12 if the data allows it.")
@output_option("Also draw the curves: a .png, .svg or .pdf file (needs the extra `viz`).")
@click.option(
    "--samples",
    "n_samples",
    type=click.IntRange(min=40),
    default=1200,
    show_default=True,
    help="How many samples to look at, drawn at random where there are more.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="No further fit begins after this time.",
)
@device_option
@click.option("--seed", type=int, default=0, show_default=True, help="For the same result again.")
@folder_options
@json_option
def command(
    data: str, output: Path | None, as_json: bool, size: int | None, skip_broken: bool, **how: Any
) -> None:
    """Recommend a number of subspaces and their dimension for DATA, and say how sure that is.

    Two halves of the data are clustered by k-subspaces, with many numbers of clusters and
    dimensions; what both halves find again, and noise does not, is structure. The eigenvalues of
    the clusters tell the dimension. Images are looked at as principal components of their pixels.
    Known labels are not used. Of the two numbers, the default method of `kscn fit` asks for the
    first only; both are for --method k-subspaces.
    """
    with _place(output) as file:
        loaded = open_data(data, size, skip_broken)
        say_left_out(loaded)
        found, name = _scan(loaded.samples, **how), loaded.name
        if file is not None and output is not None:
            from kscn.report import figures

            figures.save(_figure(found, name), file, _kind(output))
    if as_json:
        click.echo(json.dumps({"data": name, **found.to_dict(), "note": NO_PROMISE}))
        return
    terminal = Terminal.beside(output)
    terminal.say(*_lines(terminal, found, name))
    if output is not None:
        terminal.say(f"wrote {output}")


def _place(output: Path | None) -> "AbstractContextManager[BinaryIO | None]":
    """The file for the picture, opened before the work so that a wrong name costs none."""
    if output is None:
        return nullcontext()
    _kind(output)
    from kscn.report import figures

    figures.require("matplotlib.figure")
    return atomic_file(output)


def _kind(output: Path) -> str:
    from kscn.report.figures import FORMATS

    kind = output.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InputError(
            f"{output} does not end in .png, .svg or .pdf; the ending says what is drawn."
        )
    return kind


def _scan(samples: "Source", seconds: float, seed: int, **options: Any) -> "Scan":
    from kscn.cli.progress import FitProgress
    from kscn.experiments.scan import scan

    with FitProgress() as bar:

        def draw(stage: str, done: int, total: int) -> None:
            bar(None, {"stage": stage, "round": done, "rounds": total})

        return scan(samples, budget=seconds, random_state=seed, progress=draw, **options)


# In words ---------------------------------------------------------------------------------------


def _lines(terminal: Terminal, found: "Scan", name: str) -> list[str]:
    return [
        terminal.style(
            f"{name}: {found.n_samples:,} samples in {found.n_components} principal components "
            f"({found.energy:.1%} of the energy)",
            bold=True,
        ),
        "",
        f"  every k at p = {found.p}",
        *_curve(terminal, found, "k"),
        "",
        f"  every p at k = {found.k}",
        *_curve(terminal, found, "p"),
        "",
        "  stability: agreement of two halves, 1 is full; residual: energy of unseen samples",
        "  outside of their subspaces; objective: the same for the samples fitted to",
        "",
        terminal.style(
            f"recommended: k = {found.k}, p = {found.p}; confidence {found.confidence}", bold=True
        ),
        *(f"  - {reason}" for reason in found.reasons),
        f"  - {len(found.cells)} pairs of k and p in {duration(found.seconds)}",
        NO_PROMISE,
    ]


def _curve(terminal: Terminal, found: "Scan", axis: str) -> list[str]:
    """A table over k at the recommended p, or over p at the recommended k."""
    cells = [c for c in found.cells if (c.p == found.p if axis == "k" else c.k == found.k)]
    rows = [
        [str(getattr(cell, axis)), f"{cell.stability:.2f}", f"{cell.residual:.2%}",
         f"{cell.objective:.2%}"]
        for cell in cells
    ]  # fmt: skip
    head, *lines = table([axis, "stability", "residual", "objective"], rows)
    return [head] + [
        f"{line}  {terminal.bar(max(cell.stability, 0), _BAR)}".rstrip()
        + (" <-" if (cell.k, cell.p) == (found.k, found.p) else "")
        for line, cell in zip(lines, cells, strict=True)
    ]


# As a picture -----------------------------------------------------------------------------------


def _figure(found: "Scan", name: str) -> "Figure":
    """Stability over k and p, its curve over k, the residual over p, and the spectrum."""
    from kscn.report import figures

    figure: Figure = figures.require("matplotlib.figure").Figure(
        figsize=(10, 7.6), layout="constrained"
    )
    figure.set_facecolor("white")
    axes = figure.subplots(2, 2)
    _draw_grid(axes[0, 0], found)
    _draw_stability(axes[0, 1], found)
    _draw_residual(axes[1, 0], found)
    _draw_spectrum(axes[1, 1], found)
    figure.suptitle(
        f"{name}: k = {found.k}, p = {found.p}, confidence {found.confidence}", fontsize=13
    )
    figure.supxlabel(
        f"k-subspaces on {found.n_samples:,} samples, {found.n_components} principal components. "
        f"{NO_PROMISE}",
        fontsize=8,
        color="#555555",
    )
    return figure


def _draw_grid(axes: "Axes", found: "Scan") -> None:
    ks, ps = ([getattr(cell, axis) for cell in found.cells] for axis in "kp")
    values = [cell.stability for cell in found.cells]
    shown = axes.scatter(ks, ps, c=values, marker="s", s=80, cmap="viridis", vmin=0, vmax=1)
    axes.scatter([found.k], [found.p], marker="s", s=150, facecolors="none", edgecolors=_ACCENT)
    axes.figure.colorbar(shown, ax=axes, label="stability")
    axes.set(title="agreement of two halves", xlabel="clusters k", ylabel="dimension p")
    axes.locator_params(integer=True)


def _draw_stability(axes: "Axes", found: "Scan") -> None:
    best: dict[int, float] = {}
    for cell in found.cells:
        best[cell.k] = max(best.get(cell.k, -1.0), cell.stability)
    line = [cell for cell in found.cells if cell.p == found.p]
    axes.plot(list(best), list(best.values()), color=_GREY, label="best p tried")
    axes.plot(
        [c.k for c in line], [c.stability for c in line], "o-", color=_INK, label=f"p = {found.p}"
    )
    axes.plot([found.k], [found.stability], "*", ms=13, color=_ACCENT, label="on new halves")
    axes.axhline(found.noise_stability, color=_ACCENT, ls=":", label="noise there")
    axes.set(title="stability over k", xlabel="clusters k", ylabel="stability", ylim=(-0.05, 1.05))
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize=8)


def _draw_residual(axes: "Axes", found: "Scan") -> None:
    ks = sorted({cell.k for cell in found.cells})
    near = sorted(ks, key=lambda k: abs(k - found.k))[:3]
    for k in sorted(near):
        line = [cell for cell in found.cells if cell.k == k]
        colour, width = (_INK, 2.0) if k == found.k else (_GREY, 1.0)
        unseen = [cell.residual for cell in line]
        axes.plot([c.p for c in line], unseen, "o-", color=colour, lw=width, ms=4, label=f"k = {k}")
    line = [cell for cell in found.cells if cell.k == found.k]
    fitted = [cell.objective for cell in line]
    axes.plot([c.p for c in line], fitted, "--", color=_INK, label=f"k = {found.k}, fitted to")
    axes.axvline(found.p, color=_ACCENT, ls=":")
    axes.set(title="energy outside of the subspaces", xlabel="dimension p", ylabel="share")
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize=8)


def _draw_spectrum(axes: "Axes", found: "Scan") -> None:
    shown = [max(value, 1e-6) for value in found.spectrum]  # less is rounding
    axes.semilogy(range(1, len(shown) + 1), shown, "o-", color=_INK, ms=4)
    axes.axvline(found.p + 0.5, color=_ACCENT, ls=":", label=f"after dimension {found.p}")
    axes.set(title="spectrum of the clusters", xlabel="direction", ylabel="eigenvalue, largest 1")
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize=8)
