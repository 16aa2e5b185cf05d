"""`kscn report`: the page is written, or one sentence says why not."""

import os
import shutil

import pytest


@pytest.fixture(autouse=True)
def _quick_map(monkeypatch):
    """PCA in place of t-SNE, which tests of the map cover."""
    monkeypatch.setattr("kscn.report.map._tsne", lambda: None)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run, to write to."""
    return shutil.copytree(finished, tmp_path / "run")


def test_the_page_is_written_into_the_run(kscn, run, files):
    result = kscn("report", run)
    assert result.exit_code == 0, result.output
    assert f"wrote {run / 'report.html'}" in result.output
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "120 samples in 3 clusters, found by k-subspaces in" in page
    assert 'id="classes"' not in page  # x.npy has no labels
    assert sorted(p.name for p in run.iterdir() if p.name.startswith(".")) == []


def test_the_same_run_gives_the_same_page(kscn, run, tmp_path):
    for name in ("a.html", "b.html"):
        assert kscn("report", run, "-o", tmp_path / name).exit_code == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_labels_of_a_file_or_of_the_data_score_the_run(kscn, run, files, tmp_path):
    for options in (("--labels", files / "y.npy"), ("--data", files / "xy.npz")):
        result = kscn("report", run, *options, "-o", tmp_path / "page.html")
        assert result.exit_code == 0, result.output
        assert "100.0% of the samples agree" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_data_that_moved_is_asked_for_and_taken(one_sentence, kscn, run, files, tmp_path):
    config = run / "config.toml"
    config.write_text(config.read_text().replace("x.npy", "gone.npy"))
    words = one_sentence(kscn("report", run))
    assert "is no longer at" in words and "--data" in words
    assert not (run / "report.html").exists()
    assert kscn("report", run, "--data", files / "x.npy").exit_code == 0


def test_a_failure_keeps_the_older_page(one_sentence, kscn, run):
    (run / "report.html").write_text("older")
    (run / "history.jsonl").unlink()
    assert "did not finish" in one_sentence(kscn("report", run))
    assert (run / "report.html").read_text() == "older"
    assert os.listdir(run).count("report.html") == 1
