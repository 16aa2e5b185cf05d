"""Draw `_static/assign-update.svg`: k-subspaces on points near two lines, computed, not sketched.

Run `python docs/draw_assign_update.py` to write the picture again.
"""

from pathlib import Path

import numpy as np

PICTURE = Path(__file__).parent / "_static" / "assign-update.svg"
SIZE, GAP, TOP = 200, 16, 30  # of a panel, between panels, above them
SCALE = 32  # pixels per unit
COLOURS = ("#3f90da", "#e76300")
GREY, TEXT = "#94a4a2", "#7a8088"
COLUMNS = 2  # so that it can be read on a phone


def make_points(count=22):
    """Points near the lines at 20 and at 75 degrees."""
    rng = np.random.default_rng(3)
    angles = np.radians(np.repeat([20, 75], count))
    along = rng.uniform(-2.6, 2.6, 2 * count)
    points = along[:, None] * np.c_[np.cos(angles), np.sin(angles)]
    return points + 0.16 * rng.standard_normal(points.shape)


def assign(points, bases):
    """The nearest line of every point: the smallest |x - S S^T x|^2."""
    held = (points @ bases.T) ** 2  # (n, k)
    return ((points**2).sum(axis=1)[:, None] - held).argmin(axis=1)


def update(points, labels):
    """The top eigenvector of each cluster's scatter."""
    scatters = (points[labels == i].T @ points[labels == i] for i in range(2))
    return np.array([np.linalg.eigh(scatter)[1][:, -1] for scatter in scatters])


def panels():
    """Title, labels (or None) and lines of each panel."""
    points = make_points()
    bases = np.array([[np.cos(a), np.sin(a)] for a in np.radians([-10, 50])])
    yield "start: two lines", None, bases
    labels = assign(points, bases)
    yield "assign: the nearest line", labels, bases
    bases = update(points, labels)
    yield "update: the best line of each", labels, bases
    for _ in range(20):
        labels = assign(points, bases)
        bases = update(points, labels)
    yield "repeated until nothing moves", labels, bases


def draw():
    """The picture as text."""
    points = make_points()
    shown = list(panels())
    width = COLUMNS * (SIZE + GAP) - GAP
    height = len(shown) // COLUMNS * (SIZE + TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="13" role="img">',
        "<title>k-subspaces: assign every point to the nearest line, then turn the lines</title>",
    ]
    for number, (title, labels, bases) in enumerate(shown):
        row, column = divmod(number, COLUMNS)
        left, top, middle = column * (SIZE + GAP), row * (SIZE + TOP) + TOP, SIZE / 2
        parts.append(f'<g transform="translate({left} {top})">')
        # No ground, and a grey that can be read on a light page and on a dark one.
        parts.append(f'<text x="{middle}" y="-9" text-anchor="middle" fill="{TEXT}">{title}</text>')
        parts.append(f'<rect width="{SIZE}" height="{SIZE}" fill="none" stroke="{GREY}"/>')
        for (x, y), colour in zip(bases * 2.9 * SCALE, COLOURS, strict=True):
            parts.append(
                f'<line x1="{middle - x:.1f}" y1="{middle + y:.1f}" x2="{middle + x:.1f}" '
                f'y2="{middle - y:.1f}" stroke="{colour}" stroke-width="2"/>'
            )
        for i, (x, y) in enumerate(points * SCALE):
            colour = GREY if labels is None else COLOURS[labels[i]]
            parts.append(
                f'<circle cx="{middle + x:.1f}" cy="{middle - y:.1f}" r="3" fill="{colour}"/>'
            )
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
