"""The panel of data sets: one small run, draws, and what is made of the records."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def panel(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("panel")


def drawn(panel, name, seed):
    ((x, y),) = panel.SETS[name].problems(None, seed)
    return x, y


def row(**nmi):
    """A seed's record with these scores and one second for everything."""
    facts = {"acc": 90.0, "ari": 80.0, "seconds": 1.0, "seconds before refinement": 1.0}
    facts |= {"commit": "abc", "load": 0.0}
    methods = {name.replace("_", "-"): {**facts, "nmi": value} for name, value in nmi.items()}
    return {"methods": methods}


def entry(panel, rows, held_out=False):
    seeds = {str(seed): found for seed, found in enumerate(rows)}
    mean = panel.spread(rows)
    facts = {"title": "-", "held_out": held_out, "n": 9, "largest": 9, "k": 2}
    return {**facts, "seeds": seeds, "mean": mean}


@pytest.mark.filterwarnings("ignore")
def test_iris_without_umap(panel, tmp_path, monkeypatch):
    run = ["iris", "--seeds", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(panel, "warm_up", lambda: None)
    panel.main(run)
    written = json.loads((tmp_path / "panel.json").read_text())
    assert {"command", "time", "commit", "versions", "cores", "config"} <= set(written)
    iris = written["figures"]["sets"]["iris"]
    assert (iris["n"], iris["k"], list(iris["seeds"])) == (150, 3, ["1"])
    methods = iris["seeds"]["1"]["methods"]
    assert set(methods) == set(panel.METHODS) - set(panel.WITH_UMAP)
    assert methods["k-means"]["acc"] == pytest.approx(89.33, abs=0.7)
    page = (tmp_path / "panel.md").read_text(encoding="utf-8")
    assert f"| iris | 150 | 3 | {methods['kscn-plus']['nmi']:.1f} |" in page

    monkeypatch.setattr(panel, "run", lambda *_: pytest.fail("what is there is not run again"))
    panel.main(run)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["irises"], "there is no set 'irises'"), (["pbmc"], "pbmc needs pbmc_4271x2000.npz")],
)
def test_a_set_that_cannot_be_had_is_refused(
    panel, tmp_path, monkeypatch, capsys, arguments, words
):
    monkeypatch.delenv("KSCN_DATA", raising=False)
    with pytest.raises(SystemExit, match="2"):
        panel.main([*arguments, "--out", str(tmp_path)])
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_draws_follow_the_seed(panel):
    x, y = drawn(panel, "digits-10", 0)
    assert x.shape == (100, 8, 8)
    assert np.bincount(y).tolist() == [10] * 10
    assert (np.diff(y) != 0).sum() > 50  # shuffled
    np.testing.assert_array_equal(x, drawn(panel, "digits-10", 0)[0])
    assert (x != drawn(panel, "digits-10", 1)[0]).any()


def test_every_held_out_set_is_a_set(panel):
    assert set(panel.SETS) >= panel.HELD_OUT


def test_a_pool_is_compared_with_the_truth_on_its_sample(panel):
    y = np.array([9, 0, 0, 1, 1])  # the first sample is not among the rows
    tried = [
        SimpleNamespace(value=value, candidate=SimpleNamespace(labels=labels, space=s, method="km"))
        for value, labels, s in (
            (0.2, [0, 1, 0, 1], "c"),
            (0.9, [1, 1, 0, 0], "a"),
            (0.5, [0, 0, 0, 1], "b"),
        )
    ]
    found = panel.pool(SimpleNamespace(tried=tried, rows=np.arange(1, 5)), y)
    assert found["spearman"] == 1.0
    assert found["candidates"] == 3
    assert [one["space"] for one in found["top"]] == ["a", "b", "c"]
    assert (found["top"][0]["nmi"], found["nmi of the best by truth"]) == (100.0, 100.0)
    same = panel.pool(SimpleNamespace(tried=tried[1:2], rows=None), y[1:])
    assert same["spearman"] is None


def test_the_summary_names_sets_that_fall_short(panel):
    sets = {
        "iris": entry(
            panel, [row(kscn_plus=80.0, k_means=82.0), row(kscn_plus=80.0, k_means=82.0)]
        ),
        "digits-10": entry(
            panel, [row(kscn_plus=90.0, k_means=80.0, umap_k_means=91.0)], held_out=True
        ),
    }
    found = panel.summary(sets)
    against = found["all"]["nmi above k-means"]
    assert (against["mean"], against["least"], against["least on"]) == (4.0, -2.0, "iris")
    assert against["below by more than 1"] == {"iris": -2.0}
    assert found["held out"]["nmi above umap-k-means"]["below by more than 2"] == {}
    assert "nmi above umap-k-means" not in found["in sight"]
    assert found["all"]["bars missed"] == {"iris": ["acc 90, bar 92"]}
    assert found["all"]["time over that of umap-k-means, its seconds"]["highest"] == 1.0
    assert "| all | 2 | +4.0 |" in panel.page({"sets": sets, "summary": found})


def test_the_page_is_the_one_of_the_figures(panel):
    sets = panel.kept(panel.record.RESULTS)
    figures = {"sets": sets, "summary": panel.summary(sets)}
    assert panel.PAGE.read_text(encoding="utf-8") == panel.page(figures)
