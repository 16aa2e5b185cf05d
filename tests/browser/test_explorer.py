"""The explorer in a browser: clusters named, merged, split and taken back, labels exported."""

import csv
import shutil
import threading

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import uvicorn

from kscn import data, load_model
from kscn.runs.directory import read_run
from kscn.web import server
from kscn.web.explorer import Explorer
from kscn.web.exploring import explorer_app, page_path

PHONE = {"width": 360, "height": 740}
TOKEN = "a-secret"


class Visit:
    """An open page with everything it complained about or asked others for."""

    def __init__(self, page, run, address):
        self.page, self.run = page, run
        self.complaints, self.foreign = [], []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        page.on("request", self._asked)
        self._address = address
        page.goto(f"{address}/?token={TOKEN}")
        page.wait_for_selector("html[data-ready]")

    def _asked(self, request):
        if not request.url.startswith((self._address, "data:", "blob:")):
            self.foreign.append(request.url)

    def said(self, words):
        """Wait until the page says something."""
        self.page.locator("#status", has_text=words).wait_for()

    def do(self, action, value, go, panel=0):
        """Use a button of a panel, answer its question, and wait for the result."""
        self.page.locator(".panel").nth(panel).get_by_role("button", name=f"{action}…").click()
        field = self.page.locator("#ask-field > *")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
        self.page.locator("#ask-go", has_text=go).click()

    def indices(self, panel=0):
        """Samples that a panel shows."""
        items = self.page.locator(".panel").nth(panel).locator(".grid li")
        return items.evaluate_all("items => items.map((item) => Number(item.dataset.index))")

    def sizes(self):
        """Clusters by what the list calls them, with their sizes."""
        rows = self.page.locator("#list li")
        pairs = rows.evaluate_all(
            "rows => rows.map((row) => [row.querySelector('.label').textContent,"
            " Number(row.querySelector('.size').firstChild.textContent.replaceAll(',', ''))])"
        )
        return dict(pairs)

    def exported(self, path):
        """The labels that the link to the .csv file gives."""
        with self.page.expect_download() as download:
            self.page.get_by_role("link", name="labels.csv").click()
        download.value.save_as(path)
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


@pytest.fixture
def explore(browser, reports, tmp_path):
    """explore(kind, **context options) -> Visit of the explorer on a copy of that run."""
    ends = []

    def begin(kind, **options):
        run = shutil.copytree(reports[kind].parent, tmp_path / kind, dirs_exist_ok=True)
        opened = read_run(run)
        explorer = Explorer(
            run,
            opened.config,
            opened.labels(),
            len(opened.result["sizes"]),
            load_model(opened.model),
            data.load(opened.config["data"]["source"]),
        )
        listening = server.bind("127.0.0.1", 0)
        running = uvicorn.Server(
            uvicorn.Config(explorer_app(explorer, TOKEN), log_level="warning", access_log=False)
        )
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = browser.new_context(**options)

        def end():
            context.close()
            running.should_exit = True
            thread.join()
            explorer.close()

        ends.append(end)
        page = server.address(listening) + page_path(TOKEN)[:-1]
        return Visit(context.new_page(), run, page)

    yield begin
    for end in ends:
        end()


def test_clusters_are_named_merged_split_taken_back_and_exported(explore, artifacts, tmp_path):
    seen = explore("labelled")
    original = read_run(seen.run).labels()
    expected = original.copy()
    page = seen.page
    assert seen.sizes() == {f"Cluster {i}": int(n) for i, n in enumerate(np.bincount(original))}

    seen.do("Rename", "round ones", "Rename")
    seen.said("cluster 0 is “round ones” now")
    seen.do("Merge", "3", "Merge")  # 0 goes into 3, and with it its name
    seen.said("merged “round ones” into cluster 3")
    expected[expected == 0] = 3
    assert "round ones (0)" not in seen.sizes()
    page.locator("#undo").click()
    seen.said("took back")
    expected = original.copy()
    assert "round ones (0)" in seen.sizes()
    page.get_by_role("button", name="Cluster 5,").click()
    page.locator(".panel h2", has_text="Cluster 5").wait_for()
    seen.do("Merge", "0", "Merge")
    seen.said("merged cluster 5 into “round ones”")
    expected[expected == 5] = 0

    seen.do("Split", "2", "Split")
    seen.said("split “round ones” into parts")
    page.locator(".panel").nth(1).locator("h2", has_text="Cluster 10").wait_for()
    page.screenshot(path=artifacts / "explore-split.png")
    whole = np.flatnonzero(expected == 0)
    sizes = seen.sizes()
    assert sizes["round ones (0)"] + sizes["Cluster 10"] == len(whole)
    assert min(sizes["round ones (0)"], sizes["Cluster 10"]) > 0

    moved = seen.indices(panel=1)[:2]
    for item in page.locator(".panel").nth(1).locator(".grid li").all()[:2]:
        item.click()
    assert page.locator("#tray-count").inner_text() == "2 samples selected"
    page.locator("#tray-target").select_option("7")
    page.screenshot(path=artifacts / "explore-selected.png")
    page.locator("#tray-move").click()
    seen.said("moved 2 samples to cluster 7")
    assert not page.locator("#tray").is_visible()

    rows = seen.exported(tmp_path / "labels.csv")
    found = np.array([int(row["label"]) for row in rows])
    untouched = ~np.isin(np.arange(len(found)), whole)
    assert (found[untouched] == expected[untouched]).all()
    assert found[moved].tolist() == [7, 7]
    rest = np.setdiff1d(whole, moved)
    assert set(found[rest]) == {0, 10}
    assert (found == 10).sum() == sizes["Cluster 10"] - 2
    assert {row["name"] for row in rows if row["label"] == "0"} == {"round ones"}
    assert (read_run(seen.run).labels() == original).all()
    assert seen.complaints == [] and seen.foreign == []


def test_pages_turn_and_samples_are_found(explore):
    seen = explore("unlabelled")
    page = seen.page
    labels = read_run(seen.run).labels()
    panel = page.locator(".panel").first
    panel.locator(".sort").select_option("index")
    shown = []
    while True:
        page.wait_for_function("() => !document.querySelector('.grid[aria-busy]')")
        shown += seen.indices()
        turn = panel.get_by_role("button", name="Next page")
        if turn.is_disabled():
            break
        turn.click()
    assert shown == np.flatnonzero(labels == 0).tolist() and len(shown) > 60
    last = int(np.flatnonzero(labels == 2)[-1])
    page.locator("#find-index").fill(str(last))
    page.keyboard.press("Enter")
    seen.said(f"Sample {last} is in Cluster 2")
    assert page.evaluate("Number(document.activeElement.dataset.index)") == last
    page.locator("#find-index").fill("99999")
    page.locator("#find button").click()
    seen.said("here is no sample 99999")


def test_two_clusters_side_by_side(explore, artifacts):
    seen = explore("labelled")
    seen.do("Compare", "4", "Compare")
    page = seen.page
    page.locator(".panel").nth(1).locator("h2", has_text="Cluster 4").wait_for()
    left, right = (page.locator(".panel").nth(i).bounding_box() for i in (0, 1))
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
    assert not set(seen.indices(0)) & set(seen.indices(1))
    page.screenshot(path=artifacts / "explore-compare.png")
    page.locator(".panel").nth(1).get_by_role("button", name="Close").click()
    assert page.locator(".panel").count() == 1


def test_all_of_it_works_by_keyboard(explore):
    seen = explore("labelled")
    page = seen.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator(".grid li[tabindex='0']").focus()
    index = "Number(document.activeElement.dataset.index)"
    shown = seen.indices()
    assert page.evaluate(index) == shown[0]
    page.keyboard.press("ArrowRight")
    assert page.evaluate(index) == shown[1]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(index) == shown[1]
    page.keyboard.press(" ")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ ")
    assert page.locator("#tray-count").inner_text() == "2 samples selected"
    page.keyboard.press("f")
    seen.said("flagged 2 samples as wrong")
    assert page.locator("#summary", has_text="2 flagged").is_visible()
    assert page.evaluate(index) == shown[2]  # the focus stays where it was
    page.keyboard.press("Control+z")
    seen.said("took back the last edit")
    page.keyboard.press("Control+Shift+Z")
    seen.said("flagged 2 samples")
    page.keyboard.press("Enter")
    page.locator("#detail img").wait_for()
    assert page.locator("#detail-title").inner_text().startswith(f"Sample {shown[2]},")
    page.keyboard.press("Escape")
    assert not page.locator("#detail").is_visible()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find-index"


def test_everything_has_a_name_for_screen_readers(explore):
    page = explore("labelled").page
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, select, [role=option]")]
          .filter((one) => one.checkVisibility())
          .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim()
            || (one.labels && one.labels.length))).map((one) => one.outerHTML)"""
    )
    assert nameless == []
    assert page.get_by_role("listbox", name="Samples of Cluster 0").count() == 1
    options = page.locator(".grid").get_by_role("option")
    assert "outside its subspace" in options.first.get_attribute("aria-label")


def test_vectors_are_curves_with_a_table_of_features(explore, artifacts):
    seen = explore("vectors")
    page = seen.page
    assert page.locator(".grid polyline").count() == len(seen.indices()) > 0
    page.screenshot(path=artifacts / "explore-vectors.png")
    page.locator(".grid li").first.dblclick()
    page.locator("#detail table").wait_for()
    assert page.locator("#detail th").first.inner_text() == "height"
    assert page.locator("#detail th", has_text="<b>bold</b>").count() == 1  # escaped, hence text
    page.screenshot(path=artifacts / "explore-vector-detail.png")
    assert seen.complaints == []


def test_a_name_that_is_markup_stays_text(explore):
    seen = explore("vectors")
    seen.do("Rename", "<img src=x onerror=alert(1)>", "Rename")
    seen.said("<img src=x")
    assert "<img src=x onerror=alert(1)> (0)" in seen.sizes()
    assert seen.page.locator("img[src=x]").count() == 0
    assert seen.complaints == []


def test_a_phone_never_scrolls_sideways(explore, artifacts):
    seen = explore("labelled", viewport=PHONE, has_touch=True)
    page = seen.page
    page.locator(".grid li").nth(3).tap()
    assert page.locator("#tray").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.screenshot(path=artifacts / "explore-phone.png", full_page=True)
    page.locator(".panel").get_by_role("button", name="Split…").click()
    page.screenshot(path=artifacts / "explore-phone-dialog.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.locator("#ask-cancel").click()
    assert seen.complaints == []


def test_dark_is_followed_and_can_be_switched(explore, artifacts):
    page = explore("labelled", color_scheme="dark").page
    page.screenshot(path=artifacts / "explore-dark.png")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    assert page.locator("#theme").get_attribute("aria-pressed") == "false"
    light = page.evaluate(background)
    assert sum(map(int, light[4:-1].split(","))) > 600 > 150 > sum(map(int, dark[4:-1].split(",")))


def test_without_the_token_the_page_is_closed(explore, browser):
    seen = explore("vectors")
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(seen._address)
    assert answer.status == 401
    context.close()
    assert "token" not in seen.page.url
