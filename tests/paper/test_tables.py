"""The tables: the paper's figures as data, ours beside them, and the pages of the docs."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kscn.data.named import NAMES
from kscn_paper import runs, tables
from kscn_paper.__main__ import cli, figures_page
from kscn_paper.tables import Row

ROOT = Path(__file__).parents[2]
RESULTS, DOCS = ROOT / "results" / "paper", ROOT / "docs" / "the-paper"


@pytest.mark.parametrize(
    ("command", "pages"),
    [("tables", ["tables.md", "published.md"]), ("readings", ["readings.md"])],
)
def test_the_pages_are_those_of_the_results(tmp_path, command, pages):
    done = CliRunner().invoke(cli, [command, "--results", str(RESULTS), "--docs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for page in pages:
        written = (tmp_path / page).read_text(encoding="utf-8")
        assert written == (DOCS / page).read_text(encoding="utf-8")


def test_the_page_of_figures_is_that_of_its_results():
    found = json.loads((RESULTS / "figures.json").read_text(encoding="utf-8"))
    assert figures_page(found) == (DOCS / "figures.md").read_text(encoding="utf-8")


def test_every_row_of_the_paper_is_measured():
    measured = runs.read(RESULTS / runs.FILE)
    for name, table in tables.published().items():
        for dataset in table.keys() - {"title", "extras"}:
            rows = tables.rows(name, dataset, measured)
            assert not [row.title for row in rows if not row.runs], (name, dataset)


# Of the README: data as it calls them -> table and data set.
SETS = {
    "MNIST 70,000": ("mnist", "mnist"),
    "Fashion-MNIST 70,000": ("fashion", "fashion-mnist"),
    "MNIST 10,000 test images": ("subspace", "mnist-test"),
    "Fashion-MNIST 10,000 test images": ("subspace", "fashion-mnist-test"),
}
ROWS = re.compile(
    r"^\| ([\w-]+ [\w, ]*), (`best`|kSCN-[SG])(?:, preset `(\w+)`)? \| (.*) \|$", re.M
)


def test_the_rows_of_the_readme_are_those_of_the_results():
    measured = runs.read(RESULTS / runs.FILE)
    for data, method, preset, cells in ROWS.findall((ROOT / "README.md").read_text("utf-8")):
        method = method.strip("`").lower()
        preset = None if method == "best" else preset or "tuned"
        rows = tables.rows(*SETS[data], measured)
        (row,) = (row for row in rows if (row.method, row.preset) == (method, preset))
        ours = [row.ours(score) for score in tables.SCORES]
        assert cells.split(" | ")[:4] == [*ours, str(len(row.runs))], (data, method, preset)


# The paper's figures -----------------------------------------------------------------------------


def test_every_table_is_sound():
    found = tables.published()
    counts = {}
    for name, table in found.items():
        parts = {key: part for key, part in table.items() if key not in ("title", "extras")}
        assert {*parts} <= {*NAMES}
        counts[name] = len({method for rows in parts.values() for method in rows})
        for scores in (scores for rows in parts.values() for scores in rows.values()):
            figures = {key: value for key, value in scores.items() if key in tables.SCORES}
            assert {"acc", "nmi"} <= {*figures} and {*scores} - {*figures} <= {"approximate"}
            assert all(0 < value < 100 for value in figures.values())
    assert counts == {"mnist": 8, "fashion": 7, "subspace": 10, "dcn-cae": 2}
    assert found["mnist"]["mnist"]["kscn-s"] == {"acc": 87.14, "nmi": 78.15, "ari": 75.81}
    assert found["fashion"]["fashion-mnist"]["kscn-s"]["acc"] == 63.78
    assert found["subspace"]["fashion-mnist-test"]["kscn-s"] == {"acc": 60.02, "nmi": 62.30}


# Rows --------------------------------------------------------------------------------------------


def record(method, acc, seed=0, preset=None, dataset="mnist", **more):
    config = {"dataset": dataset, "method": method, "preset": preset, "parameters": {}}
    scores = {"acc": acc, "nmi": acc - 0.1, "ari": acc - 0.2}
    known = {"seed": seed, "scores": scores, "time": "2026-01-01T00:00", "commit": "c0ffee"}
    return {"config": config | more.pop("config", {}), **known, **more}


def test_every_run_counts_and_presets_are_rows_of_their_own():
    measured = [
        record("kscn-s", 0.80, 0, "paper"),
        record("kscn-s", 0.94, 5, "tuned"),
        record("kscn-s", 0.90, 0, "tuned"),
        record("kscn-s", 0.10, 1, "tuned", config={"set": {"epochs": 1}}),  # tried by hand
        record("kscn-s", 0.10, 2, "tuned", dataset="mnist-test"),
        record("ssc", 0.5),
        record("k-means on whitened scattering", 0.6),
    ]
    rows = {row.title: row for row in tables.rows("mnist", "mnist", measured)}
    assert [*rows][-5:] == [
        "kscn-g",
        "kscn-s (tuned)",
        "kscn-s (paper)",
        "ssc",
        "k-means on whitened scattering",
    ]
    tuned = rows["kscn-s (tuned)"]
    assert [run["seed"] for run in tuned.runs] == [0, 5]
    assert (tuned.ours("acc"), tuned.theirs("acc"), tuned.gap("acc")) == (
        "92.0 ± 2.0",
        "87.14",
        "▲ +4.9",
    )
    assert rows["kscn-s (paper)"].gap("acc") == "▼ -7.1"
    assert (rows["ssc"].theirs("acc"), rows["ssc"].gap("acc")) == ("-", "-")
    assert rows["dec"].ours("acc") == rows["dec"].gap("acc") == "-"
    only = tables.rows("dcn-cae", "mnist", [record("ssc", 0.5), record("dcn-cae", 0.5)])
    assert [row.title for row in only] == ["cae-km", "dcn-cae"]  # it wants no extras


@pytest.mark.parametrize(
    ("acc", "gap"),
    [
        (0.8714, "▲ +0.0"),
        (0.9, "▲ +2.9"),
        (0.8713, "● -0.0"),
        (0.8414, "● -3.0"),  # 84.14 - 87.14 is -3.0000000000000004 or so
        (0.8413, "▼ -3.0"),
    ],
)
def test_three_points_below_is_the_limit(acc, gap):
    assert Row("kscn-s", None, [record("kscn-s", acc)], {"acc": 87.14}).gap("acc") == gap


def test_a_note_that_several_rows_share_is_written_once():
    more = {"from": "`x.py`"}
    rows = [
        Row("dec", None, [record("dec", 0.8, **more)], remark="Slow."),
        Row("dcn", None, [record("dcn", 0.8, **more), record("dcn", 0.8, 1, **more)]),
        Row("idec", None, [], remark="Never shown: it has no figure."),
    ]
    head, _, dec, dcn, idec, _, *notes = tables._table(rows)
    assert head == "| method | ACC | NMI | ARI | seeds |"
    assert dec == "| dec <sup>1, 2</sup> | 80.0 | 70.0 | 60.0 | 1 |"
    assert dcn == "| dcn <sup>2</sup> | 80.0 ± 0.0 | 70.0 ± 0.0 | 60.0 ± 0.0 | 2 |"
    assert idec == "| idec | - | - | - | - |"
    assert [note.strip() for note in notes] == [
        "<sup>1</sup> Slow.",
        "<sup>2</sup> Measured by `x.py` on 2026-01-01, commit c0ffee.",
    ]
