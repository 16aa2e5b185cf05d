"""The smallest run of every benchmark works, and says what it measured."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = sorted(
    path
    for kind in ("quality", "speed", "robustness")
    for path in (BENCHMARKS / kind).glob("*.py")
    if "__main__" in path.read_text(encoding="utf-8")
)


@pytest.fixture
def script(monkeypatch):
    """Import quality/panel.py by "quality/panel", beside the modules that it needs."""

    def load(name):
        path = BENCHMARKS / f"{name}.py"
        for folder in (BENCHMARKS, path.parent):
            monkeypatch.syspath_prepend(str(folder))
        return importlib.import_module(path.stem)

    return load


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_says_what_it_is_for(script, path, capsys):
    with pytest.raises(SystemExit, match="0"):
        script(f"{path.parent.name}/{path.stem}").main(["--help"])
    assert "usage:" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_one_set_of_the_panel(script, tmp_path, capsys):
    panel, page = script("quality/panel"), script("quality/page")
    run = ["iris", "--seeds", "1", "--methods", "best", "k-means", "--out", str(tmp_path)]
    panel.main(run)
    written = json.loads((tmp_path / "quality.json").read_text())["panel"]
    assert {"command", "time", "commit", "versions", "cores", "config"} <= set(written)
    iris = written["figures"]["sets"]["iris"]
    assert (iris["n"], iris["k"], set(iris["methods"])) == (150, 3, {"best", "k-means"})
    assert iris["methods"]["k-means"]["acc"] == [pytest.approx(89.33, abs=0.7)]
    capsys.readouterr()
    panel.main(run)  # what is there is not run again
    assert capsys.readouterr().out == ""
    results, out = tmp_path / "quality.json", tmp_path / "panel.md"
    page.main(["--results", str(results), "--out", str(out)])
    nmi = iris["methods"]["best"]["mean"]["nmi"]
    assert f"| {nmi:.1f} | " in out.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
def test_a_set_that_cannot_be_had_is_left_out(script, tmp_path, capsys):
    panel, out = script("quality/panel"), ["--methods", "k-means", "--out", str(tmp_path)]
    panel.main(["pbmc", "--data", str(tmp_path), *out])
    assert "pbmc is left out: it needs pbmc_4271x2000.npz" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        panel.main(["irises", *out])
    assert not list(tmp_path.iterdir())


def test_draws_follow_the_seed(script):
    sets = script("quality/sets")
    (x, y), (again, _), (other, _) = (
        sets.SETS["digits-10"].problems(None, seed)[0] for seed in (0, 0, 1)
    )
    assert x.shape == (100, 8, 8)
    assert np.bincount(y).tolist() == [10] * 10
    assert (np.diff(y) != 0).sum() > 50  # shuffled
    np.testing.assert_array_equal(x, again)
    assert (x != other).any()
    assert len(sets.SETS) == 38
    assert set(sets.SETS) >= sets.HELD_OUT


def test_seeds_of_a_method_are_joined(script):
    panel = script("quality/panel")
    first = panel.joined({"seeds": []}, 2, {"nmi": 80.0, "seconds": 1.0})
    both = panel.joined(first, 0, {"nmi": 90.0, "seconds": 2.0})
    assert (both["seeds"], both["nmi"], both["seconds"]) == ([0, 2], [90.0, 80.0], [2.0, 1.0])
    assert (both["mean"]["nmi"], both["std"]["nmi"]) == (85.0, 5.0)


def test_entries_of_a_file_are_kept_beside_each_other(script, tmp_path):
    record = script("record")
    record.write("speed", {}, {"a": [1, 2]}, tmp_path, "first")
    record.write("speed", {}, {"b": 3}, tmp_path, "second")
    record.write("speed", {}, {"a": [4]}, tmp_path, "first")
    assert record.figures("speed", tmp_path, "first") == {"a": [4]}
    assert record.figures("speed", tmp_path, "second") == {"b": 3}
    assert record.figures("speed", tmp_path, "third") == {}
    assert '"a": [4]' in (tmp_path / "speed.json").read_text()


@pytest.mark.filterwarnings("ignore")
def test_a_small_measurement_of_speed(script, capsys):
    script("speed/fit").main(["iteration", "--small"])
    assert "ratio" in capsys.readouterr().out
