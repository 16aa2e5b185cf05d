"""Figures for print: the latent before and after, and what each subspace is made of.

Drawn by matplotlib without a screen and without its global state; needs the extra `viz`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kscn import extras
from kscn.errors import InputError
from kscn.report.map import framed
from kscn.report.palette import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
STEP = 2.0  # standard deviations from the mean to the ends of a direction
_DPI = 200
_TILE = 0.52  # inches of an image in a figure of many
_NAMED = 30  # groups at most that get a name in the picture and in the legend


def require(module: str) -> Any:
    """Import a package of the extra `viz`, or say how to install it."""
    return extras.require(module, "viz", "a figure")


def save(figure: Figure, file: BinaryIO, kind: str) -> None:
    """Write a figure in one of `FORMATS`; the same figure gives the same bytes."""
    matplotlib = require("matplotlib")
    # No date; and text stays text, which can be searched and read aloud.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "kscn", "svg.fonttype": "none"}):
        figure.savefig(file, format=kind, dpi=_DPI, metadata=dates.get(kind))


# The latent -------------------------------------------------------------------------------------


def embed(points: NDArray, seed: int = 0, threads: int = 1) -> NDArray:
    """t-SNE of points (n, d): their places in the plane, (n, 2)."""
    tsne = require("openTSNE")
    if len(points) < 4:
        raise InputError(f"t-SNE of {len(points)} samples shows nothing; give at least 4.")
    perplexity = min(30.0, (len(points) - 1) / 3)  # what so few points have room for
    made = tsne.TSNE(perplexity=perplexity, n_jobs=threads, random_state=seed)
    return np.asarray(made.fit(np.asarray(points, dtype=np.float64)))


@dataclass(frozen=True)
class Panel:
    """Samples laid out in the plane: what they are (title), and where (n, 2)."""

    title: str
    places: NDArray


def latent_figure(
    panels: Sequence[Panel], groups: NDArray, names: Sequence[str], what: str, caption: str
) -> Figure:
    """The same samples in several spaces side by side, coloured alike, with a caption below.

    `groups` (n,) are indices into `names`, and `what` a group is: "class" or "cluster".
    """
    figure = _new_figure(5.2 * len(panels), 6.2)
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), i + 1)
        _scatter(axes, panel, groups, names)
    width = 1 / (5.2 * len(panels))
    rows = _legend(figure, names, what, columns=5 * len(panels))
    bottom = (0.5 + 0.24 * rows) / 6.2
    figure.subplots_adjust(0.2 * width, bottom, 1 - 0.2 * width, 0.93, wspace=0.04)
    figure.text(0.5, 0.12 / 6.2, caption, ha="center", va="bottom", fontsize=8, color="#555555")
    return figure


def _scatter(axes: Axes, panel: Panel, groups: NDArray, names: Sequence[str]) -> None:
    shades = np.array(colours(len(names)))
    # In random order: drawn group by group, the last one would seem to lie above all others.
    order = np.random.default_rng(0).permutation(len(groups))
    x, y = framed(panel.places).T
    size = float(np.clip(9000 / len(groups), 1.2, 14))
    axes.scatter(x[order], y[order], s=size, c=shades[groups[order]], linewidths=0, rasterized=True)
    if len(names) <= _NAMED:
        for i, name in enumerate(names):
            if (groups == i).any():
                _name(axes, x[groups == i], y[groups == i], name)
    axes.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_color("#cccccc")
    axes.set_title(panel.title, fontsize=12, pad=8)


def _name(axes: Axes, x: NDArray, y: NDArray, name: str) -> None:
    """A group's name at the member that is nearest to the middle of the group."""
    effects = require("matplotlib.patheffects")
    middle = ((x - np.median(x)) ** 2 + (y - np.median(y)) ** 2).argmin()
    outline = [effects.withStroke(linewidth=2.5, foreground="white")]
    axes.text(
        x[middle], y[middle], name, ha="center", va="center", fontsize=11, fontweight="bold",
        color="#222222", path_effects=outline,
    )  # fmt: skip


def _legend(figure: Figure, names: Sequence[str], what: str, columns: int) -> int:
    """One dot per group below the panels; how many rows that takes."""
    lines = require("matplotlib.lines")
    shown = list(zip(names, colours(len(names)), strict=True))[:_NAMED]
    dots = [
        lines.Line2D([], [], marker="o", linestyle="", color=shade, markersize=6, label=name)
        for name, shade in shown
    ]
    title = f"{what} (the first {_NAMED} of {len(names)})" if len(names) > len(shown) else what
    # The title as an entry of the row: a heading of its own would be far from the dots.
    head = lines.Line2D([], [], linestyle="", label=f"{title}:")
    columns = min(columns, len(dots)) + 1
    rows = -(-(len(dots) + 1) // columns)
    figure.legend(
        handles=[head, *dots], loc="lower center", ncols=columns, frameon=False, fontsize=9,
        bbox_to_anchor=(0.5, 0.28 / 6.2), handletextpad=0.1, columnspacing=1.2,
    )  # fmt: skip
    return rows


# The subspaces ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Portrait:
    """What a subspace is made of, as images."""

    title: str  # its number, its size, and what its members mostly are
    mean: NDArray  # of the members, (*shape)
    ends: NDArray  # the mean moved to both ends of each direction, widest first, (m, 2, *shape)
    nearest: NDArray  # members by their distance to the subspace, (m, *shape)
    farthest: NDArray


def portraits(
    model: Any,
    images: NDArray,
    titles: Sequence[str],
    n_directions: int = 3,
    n_nearest: int = 5,
    n_farthest: int = 3,
) -> list[Portrait]:
    """Look at every subspace of a fitted model that has members among some images.

    Images are grey (n, h, w) or in colour (n, 3, h, w), and each subspace has a title. Within a
    subspace no basis is better than another, so the directions are those along which its members
    vary most. Distances are measured where the subspaces are, relative to the length of the
    latent: a faint image is not a typical one.
    """
    import torch

    from kscn.report.spaces import Drawable, space_of

    shape = images.shape[1:]
    space = space_of(model, shape)
    if not isinstance(space, Drawable):
        what = "decoder" if hasattr(model, "subspaces_") else "subspaces"
        raise InputError(
            f"{type(model).__name__} has no {what} to draw with; use kscn-s, kscn-g or "
            "k-subspaces, or look at the members that `kscn report` shows."
        )
    residuals = model.residuals(images)
    labels = residuals.argmin(axis=1)
    points = space.add(images, torch.from_numpy(labels)).numpy()
    energy = np.maximum((points**2).sum(axis=1), np.finfo(np.float32).tiny)
    distance = residuals[np.arange(len(labels)), labels] / energy
    found = []
    for cluster, title in enumerate(titles):
        members = np.flatnonzero(labels == cluster)
        if not len(members):
            continue
        axes, spread = space.directions(cluster)
        count = min(n_directions, axes.shape[1])
        steps = STEP * (axes * spread)[:, :count].mT  # (m, d)
        moved = torch.stack([-steps, steps], dim=1).reshape(2 * count, -1)
        decoded = space.samples(cluster, torch.cat([torch.zeros_like(moved[:1]), moved]))
        order = members[np.argsort(distance[members], kind="stable")]
        farthest = order[::-1][: min(n_farthest, max(0, len(order) - n_nearest))]
        ends = decoded[1:].reshape(count, 2, *shape)
        found.append(Portrait(title, decoded[0], ends, images[order[:n_nearest]], images[farthest]))
    return found


def subspace_figure(shown: Sequence[Portrait], caption: str) -> Figure:
    """A row of images per subspace: mean, directions, nearest and farthest members."""
    groups = {"mean": [p.mean[None] for p in shown]}
    for i in range(max(len(p.ends) for p in shown)):
        groups[f"direction {i + 1}"] = [
            p.ends[i] if i < len(p.ends) else p.ends[:0, 0] for p in shown
        ]
    groups["nearest members"] = [p.nearest for p in shown]
    groups["farthest"] = [p.farthest for p in shown]
    counts = {title: max(1, *map(len, rows)) for title, rows in groups.items()}
    shape = shown[0].mean.shape
    tile = _TILE * shape[-2] / shape[-1]  # height of an image
    left, gap, top, bottom = 1.25, 0.22, 0.45, 0.5
    total = left + sum(_TILE * n for n in counts.values()) + gap * len(counts)
    tall = top + tile * len(shown) + bottom
    figure = _new_figure(total, tall)
    high = max(float(np.max(p.nearest)) for p in shown)
    low = min(0.0, min(float(np.min(p.nearest)) for p in shown))
    x = left
    for title, rows in groups.items():
        wide = _TILE * counts[title]
        axes = figure.add_axes((x / total, bottom / tall, wide / total, 1 - (top + bottom) / tall))
        mosaic = _mosaic(rows, counts[title], shape, low, high)
        axes.imshow(mosaic, cmap="gray", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_axis_off()
        axes.set_title(title, fontsize=8, pad=13)
        if title.startswith("direction"):
            for place, sign in ((0.25, "−"), (0.75, "+")):
                axes.text(place, 1, sign, transform=axes.transAxes, ha="center", va="bottom")
        x += wide + gap
    for i, portrait in enumerate(shown):
        y = 1 - (top + tile * (i + 0.5)) / tall
        head, *rest = portrait.title.split("\n")
        for lines, weight in ((["", *rest], "normal"), ([head, *[""] * len(rest)], "bold")):
            text = "\n".join(lines)
            figure.text(0.1 / total, y, text, va="center", fontsize=7.5, fontweight=weight)
    figure.text(0.1 / total, 0.12 / tall, caption, va="bottom", fontsize=7, color="#555555")
    return figure


def _mosaic(
    rows: Sequence[NDArray], count: int, shape: tuple[int, ...], low: float, high: float
) -> NDArray:
    """Images in rows on white, their values brought from [low, high] to [0, 1]."""
    height, width = shape[-2:]
    edge = max(1, round(width / 16))  # white between the images
    colour = shape[:-2]
    tiles = np.ones((len(rows), count, *colour, height + edge, width + edge), dtype=np.float32)
    for i, images in enumerate(rows):
        scaled = (np.asarray(images, dtype=np.float32) - low) / max(high - low, 1e-30)
        tiles[i, : len(images), ..., :height, :width] = scaled.clip(0, 1)
    # (rows, count, [3,] h, w) -> (rows * h, count * w [, 3])
    if colour:
        tiles = np.moveaxis(tiles, 2, -1)
    merged = tiles.swapaxes(1, 2)
    return merged.reshape(len(rows) * (height + edge), count * (width + edge), *colour)


def _new_figure(width: float, height: float) -> Figure:
    figure: Figure = require("matplotlib.figure").Figure(figsize=(width, height))
    figure.set_facecolor("white")
    return figure
