"""`kscn report` and the way to it: what `kscn fit` says to type next can be typed."""

import shlex
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner

from kscn.cli import cli


def call(*args):
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.fixture(autouse=True)
def _quick_map(monkeypatch):
    monkeypatch.setattr("kscn.report.map._tsne", lambda: None)


@pytest.fixture(scope="module")
def fitted(planes, tmp_path_factory):
    """fitted(method) -> (run, what the fit printed), in a directory whose name needs quotes."""
    folder = tmp_path_factory.mktemp("a folder")
    np.save(folder / "x.npy", planes[0])

    def fit(method):
        run = folder / f"run {method}"
        done = call("fit", folder / "x.npy", "-k", 3, "-o", run, "--method", method, "--seed", 0,
                    "--overwrite")  # fmt: skip
        assert done.exit_code == 0, done.output
        return run, done.output

    return fit


def test_what_fit_says_to_type_next_makes_the_report(fitted):
    run, told = fitted("k-subspaces")
    steps = [shlex.split(line, comments=True) for line in told.split("next:\n")[1].splitlines()]
    assert steps[0] == ["kscn", "report", str(run)]
    assert steps[1] == ["kscn", "explore", str(run)]
    assert any(step[1] == "predict" for step in steps)
    done = CliRunner().invoke(cli, steps[0][1:])
    assert done.exit_code == 0, done.output
    assert (run / "report.html").is_file()


def test_a_page_is_opened_only_when_asked(fitted, monkeypatch):
    opened = []
    monkeypatch.setattr(click, "launch", opened.append)
    run, _ = fitted("k-subspaces")
    assert "open it in a browser" in call("report", run).output
    assert opened == []
    assert call("report", run, "--open").exit_code == 0
    assert opened == [str(run / "report.html")]


def test_without_the_extra_one_sentence_says_what_to_install(fitted, monkeypatch):
    run, _ = fitted("k-subspaces")
    (run / "report.html").unlink(missing_ok=True)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = call("report", run)
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "kscn: a report needs the package jinja2; run pip install 'kscn[report]'."
    ]
    assert not (run / "report.html").exists()
