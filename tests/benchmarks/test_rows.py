"""The benchmarks that fill rows of the tables: k-means on features, attempts at low rows."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from kscn.data import as_source
from kscn.data.dataset import make_dataset
from kscn_paper.beside import FEATURES, added

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """Import one of them with ninety images of three kinds in place of all data sets."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 30)
    images = rng.uniform(0, 0.1, (90, 16, 16)).astype(np.float32)
    images[labels == 0, :, :5] += 0.8
    images[labels == 1, :5, :] += 0.8
    images[labels == 2, 10:, 10:] += 0.8
    opened = make_dataset(as_source(images), labels, "mnist-test")

    def load(name):
        found = importlib.import_module(name)
        monkeypatch.setattr(found.data, "load", lambda _: opened)
        return found

    return load


def test_every_kind_of_features_becomes_a_row(script, tmp_path, monkeypatch):
    means = script("feature_means")
    monkeypatch.setattr(means, "COMPONENTS", 40)
    monkeypatch.setattr(means.record, "RESULTS", tmp_path)
    monkeypatch.setattr(means.record.write, "__defaults__", (tmp_path,))
    monkeypatch.setattr("sys.argv", ["feature_means.py", "mnist-test", "--seeds", "2"])
    means.main()
    assert set(means.KINDS) == set(FEATURES)
    runs = added([], "mnist-test", 3, tmp_path)
    assert [run["config"]["method"] for run in runs] == [n for n in FEATURES.values() for _ in "01"]
    assert max(run["scores"]["acc"] for run in runs) == 1.0


def test_attempts_are_written_as_they_come(script, tmp_path, monkeypatch, capsys):
    attempts = script("attempts")
    monkeypatch.setattr(attempts, "ATTEMPTS", {"mnist-test/k-means": [{"n_init": 1}]})
    run = ["--seeds", "1", "--out", str(tmp_path)]
    attempts.main([*run, "--list"])
    assert "to be measured" in capsys.readouterr().out
    attempts.main(run)
    cells = json.loads((tmp_path / "attempts.json").read_text())["figures"]["cells"]
    (cell,) = cells.values()
    assert {"acc", "nmi", "ari", "empty", "sizes", "objective", "settings"} <= set(cell)
    monkeypatch.setattr(attempts, "attempt", lambda *_: pytest.fail("it is there"))
    attempts.main(run)
