"""`kscn demo` and the drawing beneath it."""

import io
import shutil

import numpy as np
import pytest

from kscn import metrics
from kscn.cli.rundir import read_run
from kscn.cli.summary import size_lines
from kscn.cli.terminal import Terminal, duration
from kscn.cli.thumbnails import strip, thumbnail

COLOUR, BLOCKS, ASCII = (
    Terminal(True, True, 80),
    Terminal(True, False, 80),
    Terminal(False, False, 80),
)


def test_demo_clusters_digits_draws_them_and_beats_k_means(kscn, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "demo")  # an earlier run, to be replaced
    result = kscn("demo", "-o", tmp_path / "demo", env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert sum(line.startswith("cluster ") for line in lines) == 10
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    ours, theirs = (next(line.split() for line in lines if line.startswith(f"  {name} "))
                    for name in ("k-subspaces", "k-means"))  # fmt: skip
    assert float(ours[1].rstrip("%")) >= 88 > float(theirs[1].rstrip("%"))
    run = read_run(tmp_path / "demo")
    assert run.result["scores"]["acc"] >= 0.88
    assert metrics.scores(run.labels(), run.labels())["acc"] == 1


def test_demo_does_not_replace_other_peoples_files(kscn, tmp_path):
    (tmp_path / "labels.csv").write_text("mine")
    assert kscn("demo", "-o", tmp_path).exit_code == 2
    assert (tmp_path / "labels.csv").read_text() == "mine"


IMAGE = np.array([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])


def test_two_pixels_share_a_character():
    assert thumbnail(BLOCKS, IMAGE) == [" ▀▄█"]
    assert thumbnail(ASCII, IMAGE) == [" '.#"]


def test_colours_show_both_pixels_in_grey():
    (line,) = thumbnail(COLOUR, IMAGE[:, 1:2])
    assert line == "\x1b[38;5;255m\x1b[48;5;232m▀"  # white above black


def test_a_strip_ends_every_image_with_a_reset():
    (line,) = strip([["a"], ["b"]], COLOUR)
    assert line == "a\x1b[0m b\x1b[0m"
    assert strip([["a", "c"], ["b", "d"]], BLOCKS) == ["a b", "c d"]


def test_bars_are_to_scale():
    assert BLOCKS.bar(1.0, 4) == "████"
    assert BLOCKS.bar(0.53, 2) == "█"
    assert BLOCKS.bar(0.75, 2) == "█▌"
    assert ASCII.bar(0.5, 4) == "##"


def test_many_clusters_are_cut_short():
    lines = size_lines(ASCII, [5] * 30)
    assert len(lines) == 22
    assert lines[-1] == "  ... and 10 more clusters with 50 samples"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.312, "0.31 s"), (12.44, "12.4 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")],
)
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("encoding", "tty", "environment", "blocks", "colours"),
    [
        ("utf-8", True, {"TERM": "xterm-256color"}, True, True),
        ("utf-8", True, {"TERM": "xterm-256color", "NO_COLOR": "1"}, True, False),
        ("utf-8", True, {"TERM": "dumb"}, True, False),
        ("utf-8", False, {"TERM": "xterm-256color"}, True, False),
        ("utf-8", False, {"FORCE_COLOR": "1"}, True, True),
        ("ascii", True, {"TERM": "xterm-256color"}, False, False),
    ],
)
def test_the_terminal_decides_what_is_drawn(
    monkeypatch, encoding, tty, environment, blocks, colours
):
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(stream, "isatty", lambda: tty)
    terminal = Terminal.of(stream)
    assert (terminal.blocks, terminal.colours) == (blocks, colours)
