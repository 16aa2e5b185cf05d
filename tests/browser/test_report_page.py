"""The report in a browser: quiet, offline, usable by pointer, keyboard and on a phone."""

import itertools

import pytest

KINDS = ["labelled", "unlabelled", "refined", "vectors"]
PHONE = {"width": 360, "height": 740}
SECTIONS = ["summary", "sizes", "map", "clusters", "training", "settings"]


def pixels(page):
    """How many pixels of the map are not empty, read where the map was just drawn."""
    return page.evaluate(
        """() => new Promise((done) => requestAnimationFrame(() => {
          dispatchEvent(new Event("resize"));
          const plot = document.querySelector("#plot"), copy = document.createElement("canvas");
          document.querySelector('[data-zoom="0"]').click();
          requestAnimationFrame(() => {
            copy.width = plot.width; copy.height = plot.height;
            const context = copy.getContext("2d");
            context.drawImage(plot, 0, 0);
            const data = context.getImageData(0, 0, copy.width, copy.height).data;
            let count = 0;
            for (let i = 3; i < data.length; i += 4) if (data[i]) count++;
            done(count);
          });
        }))"""
    )


def hover(page):
    """Move the pointer over the drawn points until one is told about."""
    page.locator("#plot").scroll_into_view_if_needed()
    box = page.locator("#plot").bounding_box()
    for across, down in itertools.product(range(2, 19), repeat=2):
        page.mouse.move(box["x"] + box["width"] * across / 20, box["y"] + box["height"] * down / 20)
        if page.locator("#tip").is_visible():
            return
    raise AssertionError("no point under the pointer")


@pytest.mark.parametrize("kind", KINDS)
def test_every_section_is_there_and_nothing_complains(visit, artifacts, kind):
    seen = visit(kind)
    for section in SECTIONS:
        assert seen.page.locator(f"section#{section}").is_visible()
        assert seen.page.locator(f"nav a[href='#{section}']").count() == 1
    assert seen.page.locator("section#classes").count() == (1 if kind == "labelled" else 0)
    hover(seen.page)
    seen.page.screenshot(path=artifacts / f"{kind}-light.png", full_page=True)
    assert seen.complaints == []
    assert seen.places() == []


def test_the_policy_stops_requests_and_foreign_scripts(visit):
    seen = visit("labelled")
    loaded = seen.page.evaluate(
        """() => new Promise((done) => {
          const script = document.createElement("script");
          script.textContent = "window.foreign = true";
          document.body.append(script);
          fetch("http://127.0.0.1:9/").then(() => done("loaded"), () => done("refused"));
        })"""
    )
    assert loaded == "refused"
    assert seen.page.evaluate("window.foreign") is None
    assert any("Content Security Policy" in complaint for complaint in seen.complaints)


def test_hovering_shows_the_image_of_a_sample(visit):
    page = visit("labelled").page
    hover(page)
    assert "sample" in page.locator("#tip-text").inner_text()
    assert "class" in page.locator("#tip-text").inner_text()
    drawn = page.evaluate(
        """() => {
          const picture = document.querySelector("#tip-picture");
          const data = picture.getContext("2d").getImageData(0, 0, picture.width, picture.height);
          return [picture.width, picture.height, new Set(data.data).size];
        }"""
    )
    assert drawn[:2] == [8, 8]
    assert drawn[2] > 3  # greys, not an empty square


def test_vectors_show_text_without_an_image(visit):
    page = visit("vectors").page
    hover(page)
    assert "cluster" in page.locator("#tip-text").inner_text()
    assert not page.locator("#tip-picture").is_visible()
    assert page.locator(".loads th", has_text="<b>bold</b>").count() > 0  # escaped, hence text


def test_points_are_drawn_and_filtered(visit):
    page = visit("labelled").page
    every = pixels(page)
    assert every > 500
    page.locator("input[name=shown]").first.uncheck()
    fewer = pixels(page)
    assert 0 < fewer < every
    page.get_by_role("button", name="none").click()
    assert pixels(page) == 0
    page.get_by_role("button", name="all", exact=True).click()
    assert pixels(page) == every
    page.get_by_label("class", exact=True).check()
    assert pixels(page) > 500


def test_without_webgl_the_map_is_drawn_on_a_plain_canvas(visit, browser, reports):
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(
        """const real = HTMLCanvasElement.prototype.getContext;
        HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
          return kind.startsWith("webgl") ? null : real.call(this, kind, ...rest);
        };"""
    )
    page.goto(reports["labelled"].as_uri())
    page.wait_for_selector("#plot[data-renderer=canvas]")
    assert pixels(page) > 500
    hover(page)
    context.close()


def test_the_map_is_walked_by_keyboard(visit):
    page = visit("labelled").page
    page.locator("#plot").focus()
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp", "+", "ArrowLeft", "0"):
        page.keyboard.press(key)
        told.append(page.locator("#map-readout").inner_text())
    assert all("sample" in text for text in told)
    assert len(set(told)) >= 3
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


def test_matrices_are_walked_by_keyboard(visit):
    page = visit("labelled").page
    page.locator("#confusion-caption").scroll_into_view_if_needed()
    page.locator("#classes .matrix td").first.focus()
    first = page.locator("#confusion-readout").inner_text()
    page.keyboard.press("ArrowDown")
    second = page.locator("#confusion-readout").inner_text()
    assert "class 0" in first and "class 1" in second


def test_the_first_tab_stop_skips_to_the_content(visit):
    page = visit("vectors").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('header.bar')") is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_never_scrolls_sideways(visit, artifacts, kind):
    seen = visit(kind, viewport=PHONE, has_touch=True)
    width = seen.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]
    seen.page.screenshot(path=artifacts / f"{kind}-phone.png", full_page=True)
    assert seen.complaints == []


def test_dark_is_followed_and_can_be_switched(visit, artifacts):
    page = visit("labelled", color_scheme="dark").page
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    page.screenshot(path=artifacts / "labelled-dark.png", full_page=True)
    page.locator("#theme").click()
    assert page.locator("#theme").get_attribute("aria-pressed") == "false"
    light = page.evaluate(background)
    assert light == visit("labelled", color_scheme="light").page.evaluate(background)
    assert sum(map(int, light[4:-1].split(","))) > 600 > 150 > sum(map(int, dark[4:-1].split(",")))
