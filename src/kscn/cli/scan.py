"""`kscn scan`: curves over the number of subspaces and their dimension, and a recommendation."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.chosen import duration
from kscn.cli import options
from kscn.cli.figure import picture_file
from kscn.cli.rundata import open_data, say_left_out
from kscn.cli.terminal import Terminal, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kscn.experiments.scan import Cell, Scan

NO_PROMISE = "No promise of truth: this is what a subsample supports. Look at the clusters too."
_BAR = 20
_SPAN = "A:B|A,B,...|A"
_INK, _ACCENT, _GREY = "#3f90da", "#bd1f01", "#94a4a2"


@click.command("scan", short_help="Look for the number of subspaces and their dimension.")
@click.argument("data")
@click.option(
    "-k",
    "--clusters",
    type=options.span,
    metavar=_SPAN,
    help="Numbers of clusters to try; 2:20 if the data allows it.",
)
@click.option(
    "-p",
    "--dims",
    type=options.span,
    metavar=_SPAN,
    help="Dimensions to try; 1:12 if the data allows it.",
)
@options.output("Also draw the curves: a .png, .svg or .pdf file (needs the extra `viz`).")
@options.samples(40, 1200)
@click.option(
    "--seconds",
    "budget",
    type=options.POSITIVE,
    default=60.0,
    help="No further fit begins after this time.",
)
@options.device
@click.option("--seed", "random_state", type=int, default=0, help="For the same result again.")
@options.size
@options.skip_broken
@options.as_json
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
    place = nullcontext() if output is None else picture_file(output, "matplotlib.figure")
    with place as save:
        from kscn.cli.progress import FitProgress
        from kscn.experiments.scan import scan

        loaded = open_data(data, size, skip_broken)
        say_left_out(loaded)
        with FitProgress() as bar:
            found = scan(loaded.samples, progress=bar.draw, **how)
        if save is not None:
            save(_figure(found, loaded.name))
    if as_json:
        click.echo(json.dumps({"data": loaded.name, **found.to_dict(), "note": NO_PROMISE}))
        return
    wrote = [] if output is None else [f"wrote {output}"]
    terminal = Terminal.beside(output)
    terminal.say(*_lines(terminal, found, loaded.name), *wrote)


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
    (grid, stability), (residual, spectrum) = figure.subplots(2, 2)
    _draw_grid(grid, found)
    _draw_stability(stability, found)
    _draw_residual(residual, found)
    _draw_spectrum(spectrum, found)
    for axes in (grid, stability, residual, spectrum):
        axes.locator_params(axis="both" if axes is grid else "x", integer=True)
    for axes in (stability, residual, spectrum):
        axes.legend(fontsize=8)
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


def _line(axes: "Axes", cells: "list[Cell]", x: str, y: str, *style: str, **more: Any) -> None:
    axes.plot([getattr(c, x) for c in cells], [getattr(c, y) for c in cells], *style, **more)


def _draw_grid(axes: "Axes", found: "Scan") -> None:
    ks, ps = ([getattr(cell, axis) for cell in found.cells] for axis in "kp")
    values = [cell.stability for cell in found.cells]
    shown = axes.scatter(ks, ps, c=values, marker="s", s=80, cmap="viridis", vmin=0, vmax=1)
    axes.scatter([found.k], [found.p], marker="s", s=150, facecolors="none", edgecolors=_ACCENT)
    axes.figure.colorbar(shown, ax=axes, label="stability")
    axes.set(title="agreement of two halves", xlabel="clusters k", ylabel="dimension p")


def _draw_stability(axes: "Axes", found: "Scan") -> None:
    ks = sorted({cell.k for cell in found.cells})
    best = [max(cell.stability for cell in found.cells if cell.k == k) for k in ks]
    axes.plot(ks, best, color=_GREY, label="best p tried")
    line = [cell for cell in found.cells if cell.p == found.p]
    _line(axes, line, "k", "stability", "o-", color=_INK, label=f"p = {found.p}")
    axes.plot([found.k], [found.stability], "*", ms=13, color=_ACCENT, label="on new halves")
    axes.axhline(found.noise_stability, color=_ACCENT, ls=":", label="noise there")
    axes.set(title="stability over k", xlabel="clusters k", ylabel="stability", ylim=(-0.05, 1.05))


def _draw_residual(axes: "Axes", found: "Scan") -> None:
    near = sorted({cell.k for cell in found.cells}, key=lambda k: (abs(k - found.k), k))[:3]
    for k in sorted(near):
        line = [cell for cell in found.cells if cell.k == k]
        colour, width = (_INK, 2.0) if k == found.k else (_GREY, 1.0)
        _line(axes, line, "p", "residual", "o-", color=colour, lw=width, ms=4, label=f"k = {k}")
    line = [cell for cell in found.cells if cell.k == found.k]
    _line(axes, line, "p", "objective", "--", color=_INK, label=f"k = {found.k}, fitted to")
    axes.axvline(found.p, color=_ACCENT, ls=":")
    axes.set(title="energy outside of the subspaces", xlabel="dimension p", ylabel="share")
    axes.set_ylim(bottom=0)


def _draw_spectrum(axes: "Axes", found: "Scan") -> None:
    shown = [max(value, 1e-6) for value in found.spectrum]  # less is rounding
    axes.semilogy(range(1, len(shown) + 1), shown, "o-", color=_INK, ms=4)
    axes.axvline(found.p + 0.5, color=_ACCENT, ls=":", label=f"after dimension {found.p}")
    axes.set(title="spectrum of the clusters", xlabel="direction", ylabel="eigenvalue, largest 1")
