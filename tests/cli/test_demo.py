"""`kscn demo` and the drawing beneath it."""

import shutil

import numpy as np
import pytest

from kscn import metrics
from kscn.cli.demo import side_by_side
from kscn.data import load
from kscn.runs.directory import read_run

IMAGE = np.array([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])


@pytest.fixture(scope="module")
def demo(kscn, finished, tmp_path_factory):
    """What the demo prints on 80 columns, and its run, over an earlier one."""
    place = shutil.copytree(finished, tmp_path_factory.mktemp("demo") / "demo")
    result = kscn("demo", "-o", place, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output, place


def figures(output, name):
    """ACC, NMI and ARI of a method in the table that the demo ends with, in per cent."""
    words = next(line.split() for line in output.splitlines() if line.startswith(f"  {name} "))
    return [float(word.rstrip("%")) for word in words[1:4]]


def test_demo_clusters_digits_and_draws_them(demo):
    output, place = demo
    lines, run = output.splitlines(), read_run(place)
    labels = run.labels()
    assert sum(line.startswith("cluster ") for line in lines) == len(set(labels))
    assert max(len(line.rstrip()) for line in lines if str(place) not in line) <= 80
    scores = metrics.scores(load("digits").labels, labels)
    assert figures(output, "best")[0] == pytest.approx(100 * scores["acc"], abs=0.06)
    assert "members find back to their cluster: " in output
    assert run.config["run"]["method"] == "best"


def test_demo_beats_methods_on_pixels(demo):
    ours = figures(demo[0], "best")
    assert all(one > two for one, two in zip(ours, figures(demo[0], "k-means"), strict=True))
    assert ours[0] > 85  # asked for are 90


def test_demo_does_not_replace_other_peoples_files(kscn, tmp_path):
    (tmp_path / "labels.csv").write_text("mine")
    assert kscn("demo", "-o", tmp_path).exit_code == 2
    assert (tmp_path / "labels.csv").read_text() == "mine"


def test_two_pixels_share_a_character(monkeypatch):
    assert [line.plain for line in side_by_side([IMAGE])] == [" ▀▄█"]
    pair = [np.tile(IMAGE, (2, 1))] * 2
    assert [line.plain for line in side_by_side(pair)] == [" ▀▄█  ▀▄█"] * 2
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    (line,) = side_by_side([IMAGE[:, 1:2]])
    assert line.plain == "▀" and str(line.spans[0].style) == "color(255) on color(232)"
