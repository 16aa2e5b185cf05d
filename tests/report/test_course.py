"""History becomes series, and series become drawings that say what they show."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from kscn.report import charts, course

DEEP = [
    {"stage": "pretrain", "epoch": 1, "reconstruction": 4.0},
    {"stage": "pretrain", "epoch": 2, "reconstruction": 2.0},
    {"stage": "search", "round": 1, "objective": 9.0},
    {"stage": "fit", "epoch": 1, "reconstruction": 1.0, "changed": 0.5, "angle": 40.0},
    {"stage": "fit", "epoch": 2, "reconstruction": 0.5, "changed": 0.1, "angle": 10.0},
    {"stage": "done", "objective": 1.0},
]


def test_both_stages_are_in_one_series_with_a_break_and_in_the_table():
    found = {series.title: series for series in course.series(DEEP)}
    error = found["Reconstruction error per sample"]
    assert error.values == (4.0, 2.0, 1.0, 0.5)
    assert error.steps == ("pretraining 1", "pretraining 2", "epoch 1", "epoch 2")
    assert error.break_at == 2
    assert found["Samples that changed cluster"].values == (0.5, 0.1)
    assert found["Samples that changed cluster"].break_at is None
    assert len(found) == 3  # the search and the result are no part of the course
    header, rows = course.table(DEEP)
    assert len(header) == 4
    assert (rows[0], rows[-1]) == (["pretraining 1", "4", "", ""], ["epoch 2", "0.5", "10%", "10°"])


def test_the_start_has_curves_of_its_own():
    start = [{"stage": "start", "iteration": i, "objective": 7.0 / i} for i in (1, 2)]
    fit = [{"stage": "fit", "epoch": i, "objective": 90.0 / i} for i in (1, 2)]
    first, second = course.series([*start, *fit])
    assert first.title == "Start: sum of squared distances to the subspaces"
    assert (first.values, first.steps) == ((7.0, 3.5), ("start 1", "start 2"))
    assert (second.values, second.break_at) == ((90.0, 45.0), None)


def test_what_cannot_be_drawn_is_left_out_and_a_long_history_thinned():
    values = (1.0, 1e308, 2.0, -1e308, math.inf, math.nan, "3", None, 3.0)
    history = [{"stage": "fit", "epoch": i, "objective": v} for i, v in enumerate(values)]
    (series,) = course.series([*history, {"no": "stage"}])
    assert series.values == (1.0, 2.0, 3.0)
    assert course.series([]) == course.series(history[:1]) == []  # one point is no curve
    history = [{"stage": "fit", "epoch": i, "objective": float(i)} for i in range(5000)]
    assert len(course.series(history)[0].values) <= 300
    assert len(course.table(history)[1]) <= 300


@pytest.mark.parametrize(
    "values", [(4.0, 2.0, 0.5), (1.0, 1.0), (0.0, 0.0), (-3.0, 1e6), (0.0, 5e-324), (-1e99, 1e99)]
)
def test_a_line_runs_from_the_first_value_to_the_last(values):
    steps = tuple(f"epoch {i}" for i in range(len(values)))
    drawn = charts.line(charts.Series("<error>", "", steps, values, 1))
    root = ElementTree.fromstring(drawn)  # well formed, and the title is escaped
    assert root.get("aria-label").startswith("<error>: ")
    points = re.search(r'points="([^"]*)"', drawn).group(1).split()
    heights = [float(point.split(",")[1]) for point in points]
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert all(heights[a] >= heights[b] for a, b in pairwise(order))
    assert all(0 <= height <= 170 for height in heights)
