"""Drawings as SVG text: a measure over the epochs of a fit.

Colours and type come from the page's style sheet, so that drawings follow light and dark.
"""

import math
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


def value_text(value: float, unit: str) -> str:
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

    parts = []
    for tick in ticks:
        parts.append(_line("grid", _LEFT, _WIDTH - _RIGHT, y(tick), y(tick)))
        parts.append(_text(_LEFT - 6, y(tick) + 4, value_text(tick, unit), "end"))
    if series.break_at is not None:
        between = (x(series.break_at - 1) + x(series.break_at)) / 2
        parts.append(_line("break", between, between, _TOP, bottom))
    points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(values))
    parts.append(f'<polyline class="line" points="{points}"/>')
    parts.append(f'<circle class="end" cx="{x(last):.1f}" cy="{y(values[-1]):.1f}" r="3.5"/>')
    half = (_WIDTH - _LEFT - _RIGHT) / max(1, last) / 2
    for i, value in enumerate(values):  # the text under the pointer
        parts.append(
            f'<rect class="hit" x="{x(i) - half:.1f}" y="0" width="{2 * half:.1f}" '
            f'height="{bottom}"><title>{escape(steps[i])}: '
            f"{escape(value_text(value, unit))}</title></rect>"
        )
    parts.append(_text(_LEFT, _HEIGHT - 8, steps[0], "start"))
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 8, steps[-1], "end"))
    first, end = value_text(values[0], unit), value_text(values[-1], unit)
    said = f"{series.title}: {first} at {steps[0]}, {end} at {steps[-1]}."
    head = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(said)}"'
    return "".join([f'<svg class="chart" {head}>', *parts, "</svg>"])


def _line(kind: str, left: float, right: float, top: float, bottom: float) -> str:
    ends = f'x1="{left:.1f}" x2="{right:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"'
    return f'<line class="{kind}" {ends}/>'


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
