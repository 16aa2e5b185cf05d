"""The tables on the pages are those of the files in results/."""

import importlib
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kscn.cli import cli
from kscn_paper import comparison, markdown, tables

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
# Of the README: data as it calls them -> table and data set.
SETS = {
    "MNIST 70,000": ("mnist", "mnist"),
    "Fashion-MNIST 70,000": ("fashion", "fashion-mnist"),
    "MNIST 10,000 test images": ("mnist-test", "mnist-test"),
    "Fashion-MNIST 10,000 test images": ("fashion-mnist-test", "fashion-mnist-test"),
}
ROWS = re.compile(
    r"^\| ([\w-]+ [\w, ]*), (`best`|kSCN-[SG])(?:, preset `(\w+)`)? \| (.*) \|$", re.M
)


def test_all_tables_are_built_from_the_results_without_a_run(tmp_path):
    out = tmp_path / "results"
    shutil.copytree(RESULTS, out, ignore=shutil.ignore_patterns("tables"))
    done = CliRunner().invoke(cli, ["reproduce", "all", "--no-run", "--out", str(out)])
    assert done.exit_code == 0, done.output
    for kind in ("md", "html"):
        built = (out / "tables" / f"all.{kind}").read_text(encoding="utf-8")
        assert built == (RESULTS / "tables" / f"all.{kind}").read_text(encoding="utf-8")
    page = (out / "tables" / "all.md").read_text(encoding="utf-8")
    assert page == (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", tables.find("all"), ids=lambda table: table.name)
def test_every_row_of_the_paper_is_measured(table):
    for part in comparison.compare(table, RESULTS)[0]:
        empty = [row.title for row in part.rows if not row.runs]
        assert not empty, f"{part.title} has no runs of {empty}"


def test_the_rows_of_the_readme_are_those_of_the_results():
    found = ROWS.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) > 10
    for data, method, preset, cells in found:
        name, dataset = SETS[data]
        method = method.strip("`").lower()
        preset = None if method == "best" else preset or "tuned"
        (part,) = (
            part
            for table in tables.find(name)
            for part in comparison.compare(table, RESULTS)[0]
            if part.dataset == dataset
        )
        (row,) = (row for row in part.rows if (row.method, row.preset) == (method, preset))
        ours = [markdown.ours(row, score) for score in ("acc", "nmi", "ari")]
        assert cells.split(" | ")[:4] == [*ours, str(len(row.runs))], (data, method, preset)


def test_the_page_of_readings_is_that_of_its_cells(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    study = importlib.import_module("paper_readings")
    study.write_page(study.record.figures("paper_readings")["cells"], tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page == (ROOT / "docs" / "paper_readings.md").read_text(encoding="utf-8")
