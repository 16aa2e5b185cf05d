"""Rows from other results than those of `kscn reproduce`, and the table of claims."""

import json

import pytest

from kscn_paper import beside, claims, markdown
from kscn_paper.comparison import compare
from kscn_paper.tables import Table

TABLE = Table("small", "Small", 10, {"first": {"k-means": {"acc": 53.0}}})
SCORES = {"acc": 90.0, "nmi": 80.0, "ari": 70.0}


def put(out, name, figures, when="2026-01-01T00:00:00Z", **config):
    content = {"time": when, "commit": "abc", "config": config, "figures": figures}
    (out / f"{name}.json").write_text(json.dumps(content))


def frontier(out, acc=90.0, k=10, **more):
    row = {"final": SCORES | {"acc": acc}, "start": SCORES, "seconds": 12.0, "chosen": {}}
    put(out, "frontier_first", {"seeds": {"0": row, "1": row}}, k=k, **more)


def panel(out, acc=95.0, **more):
    methods = {"kscn-plus": SCORES | {"acc": acc, "seconds": 9.0, "commit": "def"}, "umap": SCORES}
    seeds = {"0": {"methods": methods}, "1": {"methods": {}}}
    put(out, "panel", {"sets": {"first": {"k": 10, "seeds": seeds}}}, **more)


def rows_of(out, table=TABLE):
    return {row.title: row for row in compare(table, out)[0][0].rows}


def test_best_is_a_row_that_says_where_it_is_from(tmp_path):
    frontier(tmp_path)
    row = rows_of(tmp_path)["best"]
    assert row.ours("acc") == pytest.approx((90.0, 0.0))
    assert [run["seed"] for run in row.runs] == [0, 1]
    assert markdown.notes(row) == ["From results/frontier_first.json of 2026-01-01, commit abc."]
    assert not row.quiet  # what else was running is not known


def test_figures_of_an_older_start_say_so(tmp_path):
    row = {"final": SCORES, "seconds": 12.0, "representation": [30, True, 10]}
    put(tmp_path, "frontier_first", {"seeds": {"0": row}}, k=10)
    (note,) = markdown.notes(rows_of(tmp_path)["best"])
    assert note.endswith(beside.BEFORE)


@pytest.mark.parametrize(("when", "acc"), [("2026-02-01", 95.0), ("2025-02-01", 90.0)])
def test_the_newest_of_several_files_counts(tmp_path, when, acc):
    frontier(tmp_path)
    panel(tmp_path, when=when)
    assert rows_of(tmp_path)["best"].ours("acc")[0] == pytest.approx(acc)


def test_runs_of_reproduce_count_where_they_are_newer(tmp_path):
    frontier(tmp_path)
    (tmp_path / "reproduce").mkdir()
    run = {
        "config": {"dataset": "first", "method": "best", "preset": None},
        "seed": 0,
        "scores": {"acc": 0.97, "nmi": 0.9, "ari": 0.9},
        "seconds": 1.0,
        "time": "2026-03-01",
    }
    (tmp_path / "reproduce" / "first_best_seed0.json").write_text(json.dumps(run))
    row = rows_of(tmp_path)["best"]
    assert row.ours("acc")[0] == pytest.approx(97.0)
    assert markdown.notes(row) == []


def test_what_does_not_fit_is_left_out(tmp_path):
    frontier(tmp_path, k=3)
    assert "best" not in rows_of(tmp_path)
    frontier(tmp_path)
    own = Table("own", "Own", 10, TABLE.rows, sources={"first": "first.npz"})
    bare = Table("bare", "Bare", 10, TABLE.rows, extras=False)
    assert "best" not in rows_of(tmp_path, own)
    assert "best" not in rows_of(tmp_path, bare)
    for text in ("{", "[]", '{"config": 1, "figures": {}}'):
        (tmp_path / "frontier_first.json").write_text(text)
        assert "best" not in rows_of(tmp_path)


def test_k_means_on_features_stands_twice(tmp_path):
    part = {"k": 10, "components": {"0": SCORES}, "whitened": {"0": SCORES | {"acc": 95.0}}}
    put(tmp_path, "feature_means", {"first": part})
    rows = rows_of(tmp_path)
    assert list(rows) == ["k-means", *list(beside.FEATURES.values())[:2]]  # what was measured
    assert rows["k-means on whitened scattering"].ours("acc")[0] == pytest.approx(95.0)


CLAIMS = {
    "affinity": {"samples": 70_000, "gb": 39.2},
    "ours": {"samples": 70_000, "peak_mb": 653.0},
    "parameters": {"sae": 3_000_000, "cae": 5_566},
    "end_to_end": {
        "methods": {
            "kscn-s": {"seconds": 300.0, "peak_mb": 600.0, "busy_elsewhere": 0.0},
            "ssc-cae": {"seconds": 1200.0, "peak_mb": 900.0, "busy_elsewhere": 0.1},
        }
    },
}


def test_the_claims_are_ratios_of_what_was_measured(tmp_path):
    put(tmp_path, "claims", CLAIMS)
    text = "\n".join(claims.section(tmp_path))
    assert "| 0.65 | an n x n matrix in float64 (computed) | 39.2 | 60 |" in text
    assert "| SAE of SAE-KM, DEC, DCN | 3,000,000 | 539 |" in text
    assert "| kscn-s (tuned) | 5.00 | 1 | 0.60 | 1 |" in text
    assert "| ssc-cae | 20.00 | 4.0 | 0.90 | 1.5 |" in text
    assert "0.60 GB for 10,000 images and 0.65 GB for 70,000" in text
    assert "nothing else was running" in text
    page = markdown.document("Title", "x", [], claims.section(tmp_path))
    assert page.endswith(claims.section(tmp_path)[-1] + "\n")


def test_claims_measured_beside_other_work_say_so(tmp_path):
    loud = json.loads(json.dumps(CLAIMS))
    loud["end_to_end"]["methods"]["ssc-cae"]["busy_elsewhere"] = 1.25
    put(tmp_path, "claims", loud)
    assert "up to 1.2 cores busy" in claims.section(tmp_path)[-1]


@pytest.mark.parametrize("figures", [{}, {"affinity": 1}, CLAIMS | {"end_to_end": {}}])
def test_claims_that_cannot_be_read_are_none(tmp_path, figures):
    assert claims.section(tmp_path) == []
    put(tmp_path, "claims", figures)
    assert claims.section(tmp_path) == []
