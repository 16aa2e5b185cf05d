"""`kscn report` and the way to it: what `kscn fit` says to type next can be typed."""

import shlex

import click
import numpy as np
import pytest
from click.testing import CliRunner

from kscn.cli import cli


def call(*args):
    done = CliRunner().invoke(cli, [str(arg) for arg in args])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.usefixtures("quick_map")
def test_what_fit_says_to_type_next_makes_the_report(planes, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", planes[0])
    run = tmp_path / "a run"  # a name that needs quotes
    said = call("fit", tmp_path / "x.npy", "-k", 3, "-o", run, "--method", "k-subspaces")
    steps = [shlex.split(line, comments=True) for line in said.split("next:\n")[1].splitlines()]
    assert steps[0] == ["kscn", "report", str(run)]
    assert steps[1] == ["kscn", "explore", str(run)]
    assert any(step[1] == "predict" for step in steps)
    opened = []
    monkeypatch.setattr(click, "launch", opened.append)
    assert "open it in a browser" in call(*steps[0][1:])
    assert (run / "report.html").is_file() and opened == []
    call("report", run, "--open")
    assert opened == [str(run / "report.html")]
