"""Every file in results/ is named by a page, and every measured figure on a page by a file."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# Tables of numbers that nobody measured here: settings, and what others have published.
NOT_MEASURED = {"preset", "method"}
NUMBER = re.compile(r"\**[+-]?\d[\d,.]*( ?±| |\**$|x|%|/|ms|s)")


def text_of(page):
    return page.read_text(encoding="utf-8")


def sections(page):
    """The parts of a page by heading, each with the page's introduction, which speaks for all."""
    intro, *rest = re.split(r"^## ", text_of(page), flags=re.M)
    return [intro, *(f"{intro}\n## {part}" for part in rest)]


def tables(section):
    """Header and rows of every table, as lists of cells."""
    for table in re.findall(r"(?:^\|.*\n)+", section + "\n", re.M):
        header, _, *rows = (
            [c.strip() for c in line.strip("| ").split("|")] for line in table.splitlines()
        )
        yield header, rows


def is_measured(header, rows):
    """Whether most cells beside the first are numbers."""
    cells = [cell for row in rows for cell in row[1:]]
    numbers = sum(bool(NUMBER.match(cell)) for cell in cells)
    return header[0] not in NOT_MEASURED and 2 * numbers > len(cells)


@pytest.mark.parametrize(
    "file", sorted(p for p in RESULTS.rglob("*") if p.is_file()), ids=lambda file: file.name
)
def test_every_result_is_named_by_a_page(file):
    name = file.relative_to(ROOT).as_posix()
    assert any(name in text_of(page) for page in PAGES), f"no page names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_and_commands_that_a_page_names_exist(page):
    for name in re.findall(r"(?:results|benchmarks)/[\w/.-]+\.\w+", text_of(page)):
        if name != "results/LOG.md":  # of the history
            assert (ROOT / name).is_file(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_of_figures_name_their_file_and_their_command(page):
    for section in sections(page):
        for header, rows in tables(section):
            if is_measured(header, rows):
                assert "results/" in section, f"{page.name}: {header} names no file of results/"
                assert re.search(r"`(python|kscn) ", section), (
                    f"{page.name}: {header} has no command"
                )


def test_pages_have_such_tables():
    measured = {
        page.stem
        for page in PAGES
        for section in sections(page)
        for header, rows in tables(section)
        if is_measured(header, rows)
    }
    assert {"README", "panel", "how-it-works", "tables"} <= measured


@pytest.mark.parametrize("name", ["quality", "speed", "robustness"])
def test_entries_say_how_they_were_measured(name):
    for entry, record in json.loads(text_of(RESULTS / f"{name}.json")).items():
        assert {"command", "time", "commit", "versions", "config", "figures"} <= set(record), entry
        script = re.match(r"python (benchmarks/\w+/\w+\.py)", record["command"])[1]
        assert (ROOT / script).is_file(), f"{entry} names {script}"


def figures(name, entry):
    return json.loads(text_of(RESULTS / f"{name}.json"))[entry]["figures"]


def test_the_panel_is_the_page_of_its_figures(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "quality"))
    importlib.import_module("page").main(["--out", str(tmp_path / "panel.md")])
    assert text_of(tmp_path / "panel.md") == text_of(DOCS / "panel.md")


def test_the_growth_on_the_page_is_the_one_measured():
    page = text_of(DOCS / "how-it-works.md")
    for row in figures("speed", "growth")["growth"]:
        line = next(line for line in page.splitlines() if line.startswith(f"| {row['n']:,} |"))
        shown = [float(cell) for cell in line.strip("| ").split("|")[1:]]
        measured = [row["seconds"], row["us_per_sample"], row["peak_growth_mb"]]
        assert shown == pytest.approx(measured, rel=0.02)


def test_rates_and_ratios_on_the_page_are_those_measured():
    page = text_of(DOCS / "scaling.md")
    for entry in ("training", "scattering"):
        found = figures("speed", entry)
        rate = round(found["images_per_second"]["ours"])
        assert f"| {rate:,} images/s, {found['ratio']:.1f} times" in page
    found = figures("speed", "iteration")
    assert f"| {found['ratio']:.1f} times one of k-means with 150 centres |" in page
    assert f"| {found['ratio to random centres']:.1f} times one of k-means without" in page
    assert f", {found['ratio of the first iterations']:.1f} times in the first 20" in page
    for name, row in figures("speed", "images").items():
        rate, memory = row["samples_per_second"], row["peak_resident_mb"] / 1000
        assert f"| {float(f'{rate:.3g}'):,.0f} images/s, {memory:.2f} GB |" in page, name
    processes = figures("speed", "processes")
    for row in processes.values():
        two, apart = row["speedup"]["2"], row["speedup"]["2 apart"]
        assert re.search(rf"\| {two:.2f}( times one)? \| {apart:.2f} \|", page)


def test_counts_of_kills_and_damage_on_the_page_are_those_measured():
    page = text_of(DOCS / "scaling.md")
    crash = figures("robustness", "crash")
    assert f"| {sum(crash['kills'].values()):,} kills | {crash['failures']} |" in page
    for entry in ("fuzz files", "fuzz models", "fuzz runs", "fuzz requests"):
        found = figures("robustness", entry)
        assert f"| {found['cases']:,} cases | {found['failed']} |" in page


def test_figures_of_the_service_are_those_measured():
    page = " ".join(text_of(DOCS / "after-a-run.md").split())
    found = figures("speed", "serve")
    rate, last = found["requests_per_second"], found["p99_ms"]
    assert f"{found['answered']:,} answered, {found['lost']} lost, {rate:.0f} per second" in page
    assert f"99 % within {last:.0f} ms, {found['server_cpu_ms_per_request']:.1f} ms of" in page
