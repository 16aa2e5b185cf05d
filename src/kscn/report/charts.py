"""Drawings as SVG text: lines over epochs, and the spectrum of a cluster.

Colours and type come from the page's style sheet, so that drawings follow light and dark.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Of the drawing area, in the units of the view box; labels stay outside of it.
_WIDTH, _HEIGHT = 340, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 14, 12, 28
_SMALLEST = 1e-100  # what is less is nothing


@dataclass(frozen=True)
class Series:
    """One measure over the course of a fit."""

    title: str
    unit: str  # "%" draws shares as percentages; anything else is only named
    steps: tuple[str, ...]  # what each value belongs to: "pretraining 3", "epoch 5"
    values: tuple[float, ...]  # finite
    break_at: int | None = None  # where a second stage begins


def told(value: float, unit: str) -> str:
    """A value as text."""
    if unit == "%":
        return f"{100 * value:.3g}%"
    large = 1e4 <= abs(value) < 1e7  # where an exponent would be harder to read
    return (f"{value:,.0f}" if large else f"{value:.4g}") + unit


def line(series: Series) -> str:
    """A line chart of a series with its first and last value in words for screen readers."""
    values, steps, unit = series.values, series.steps, series.unit
    ticks = _ticks(min(0.0, *values), max(values))
    low, high, bottom, last = ticks[0], ticks[-1], _HEIGHT - _BOTTOM, len(values) - 1

    def x(i: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (i / max(1, last))

    def y(value: float) -> float:
        return bottom - (bottom - _TOP) * (value - low) / (high - low)

    parts = [_grid(_LEFT, _WIDTH - _RIGHT, y(tick), told(tick, unit)) for tick in ticks]
    if series.break_at is not None:
        parts.append(_break((x(series.break_at - 1) + x(series.break_at)) / 2, _TOP, bottom))
    points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(values))
    parts.append(f'<polyline class="line" points="{points}"/>')
    parts.append(f'<circle class="end" cx="{x(last):.1f}" cy="{y(values[-1]):.1f}" r="3.5"/>')
    half = (_WIDTH - _LEFT - _RIGHT) / max(1, last) / 2
    for i, value in enumerate(values):  # the text under the pointer
        parts.append(
            f'<rect class="hit" x="{x(i) - half:.1f}" y="0" width="{2 * half:.1f}" '
            f'height="{bottom}"><title>{escape(steps[i])}: '
            f"{escape(told(value, unit))}</title></rect>"
        )
    parts.append(_text(_LEFT, _HEIGHT - 8, steps[0], "start"))
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 8, steps[-1], "end"))
    first, end = told(values[0], unit), told(values[-1], unit)
    said = f"{series.title}: {first} at {steps[0]}, {end} at {steps[-1]}."
    return _svg("chart", _WIDTH, _HEIGHT, said, parts)


def spectrum(values: Sequence[float], dim: int, colour: str) -> str:
    """Eigenvalues as shares of their sum on a logarithmic scale; the first `dim` are the subspace.

    They are descending and not all zero; those of the subspace have the colour of the cluster.
    """
    total = sum(values)
    shares = [value / total for value in values[: max(2 * dim + 4, 16)]]
    # Fewer members than dimensions leave eigenvalues of zero, which have no place on this scale.
    shares = shares[:dim] + [share for share in shares[dim:] if share > 1e-9]
    floor = max(min(share for share in shares if share > 0), max(shares) * 1e-5)
    low = math.floor(math.log10(floor))
    width, height, left, top, bottom = 260, 110, 40, 8, 20

    def x(i: int) -> float:
        return left + (width - left - 8) * (i + 0.5) / len(shares)

    def y(share: float) -> float:
        depth = math.log10(max(share, 10.0**low)) / low if low < 0 else 0.0
        return top + (height - top - bottom) * depth

    parts = [
        _grid(left, width - 8, y(10.0**exponent), f"{100 * 10.0**exponent:g}%")
        for exponent in range(0, low - 1, -1 if low > -4 else -2)
    ]
    edge = (x(dim - 1) + x(dim)) / 2 if dim < len(shares) else width - 8
    parts.append(_break(edge, top, height - bottom))
    for i, share in enumerate(shares):
        kind = f'style="fill:{escape(colour)}"' if i < dim else 'class="outside"'
        parts.append(
            f'<circle cx="{x(i):.1f}" cy="{y(share):.1f}" r="3.4" {kind}>'
            f"<title>direction {i + 1}: {share:.2%} of the energy</title></circle>"
        )
    for i in sorted({0, dim - 1, len(shares) - 1}):
        parts.append(_text(x(i), height - 5, str(i + 1), "middle"))
    said = f"The first {dim} directions hold {sum(shares[:dim]):.1%} of the energy of the members."
    return _svg("chart spectrum", width, height, said, parts)


def _svg(kind: str, width: int, height: int, said: str, parts: Sequence[str]) -> str:
    """A drawing of that class, with what it shows in words."""
    head = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(said)}"'
    return "".join([f'<svg class="{kind}" {head}>', *parts, "</svg>"])


def _grid(left: float, right: float, y: float, text: str) -> str:
    """A level line with its value to the left."""
    line = f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text(left - 6, y + 4, text, "end")


def _break(x: float, top: float, bottom: float) -> str:
    return f'<line class="break" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """About four round numbers that enclose low and high."""
    reach = next(size for size in (high - low, abs(high), 1.0) if size > _SMALLEST)
    size = 10.0 ** math.floor(math.log10(reach / 3))
    step = next(size * m for m in (1, 2, 5, 10) if reach / (size * m) <= 4)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, max(last, first + 1) + 1)]
