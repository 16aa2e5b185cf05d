"""The page: well formed, self-contained, locked against the network, safe with hostile names."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from kscn.report.contents import collect
from kscn.report.page import render

pytestmark = pytest.mark.usefixtures("quick_map")
VOID = {"meta", "img", "input", "br", "link", "hr"}


class Outline(HTMLParser):
    """Checks that tags nest, and gathers what a browser would see."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.faults = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


def outline(html):
    parser = Outline()
    parser.feed(html)
    assert not parser.faults and not parser.open
    return parser


@pytest.fixture
def page(linear, planes, run_of):
    """page(true=None, **options) -> the page of the planes."""

    def make(true=None, **options):
        return render(collect(*run_of(linear, planes[0], **options), true))

    return make


def test_tags_nest_and_references_resolve(page, planes):
    for html in (page(), page(planes[1])):
        parsed = outline(html)
        assert len(set(parsed.ids)) == len(parsed.ids)
        for _, attrs in parsed.tags:
            for name in ("aria-labelledby", "aria-describedby", "data-readout"):
                assert attrs.get(name, parsed.ids[0]) in parsed.ids
            if attrs.get("href", "").startswith("#"):
                assert attrs["href"][1:] in parsed.ids


def test_images_have_alternatives_and_come_with_the_page(linear, planes, run_of):
    from kscn import KSubspaces

    images = planes[0].reshape(-1, 2, 4)
    model = KSubspaces(3, subspace_dim=2, random_state=0).fit(images)
    parsed = outline(render(collect(*run_of(model, images))))
    pictures = [attrs for tag, attrs in parsed.tags if tag == "img"]
    assert len(pictures) > 30
    assert all("alt" in attrs and attrs["src"].startswith("data:image/png") for attrs in pictures)


def test_nothing_is_loaded_from_elsewhere(page):
    html = page()
    for _, attrs in outline(html).tags:
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            assert attrs.get(name, "#").startswith(("#", "data:image/png"))
    assert "@import" not in html and "url(" not in html
    assert "http://" not in html and "https://" not in html


def test_the_policy_allows_this_script_only(page):
    html = page()
    policy = next(
        attrs["content"]
        for tag, attrs in outline(html).tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    script = re.search(r"<script>(.*)</script>", html, re.DOTALL).group(1)
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{checksum}';" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]


HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def test_text_from_the_data_is_escaped(linear, planes, run_of, page):
    classes = np.array(["</script><script>alert(2)</script>", HOSTILE, "c"])[planes[1]]
    html = page(classes, name=HOSTILE, method="<b>method</b>")
    run, data = run_of(linear, planes[0])
    data.samples.columns = [*["<i>a</i>"] * 7, HOSTILE]
    table = render(collect(run, data, classes))
    for text in (html, table):
        parsed = outline(text)
        assert [a for t, a in parsed.tags if t == "script"] == [
            {"type": "application/json", "id": "map-data"},
            {},
        ]
        assert not any("onerror" in attrs for _, attrs in parsed.tags)
    assert "&lt;i&gt;a&lt;/i&gt;" in table


def test_the_map_can_be_read_by_the_script(page, linear):
    body = re.search(r'id="map-data">(.*?)</script>', page(), re.DOTALL).group(1)
    data = json.loads(body)
    assert data["cluster"] == linear.labels_.tolist()
    assert np.shape(data["places"]) == (120, 2)


def test_a_run_without_history_says_so(linear, planes, run_of):
    run, data = run_of(linear, planes[0])
    short = type(run)(run.config, run.history[-1:], run.labels, run.model)
    assert "kept no history" in render(collect(short, data))


def test_sections_follow_what_is_known(page, planes):
    every = {"summary", "sizes", "map", "clusters", "angles", "training", "settings"}
    for html, more in ((page(), set()), (page(planes[1]), {"classes"})):
        sections = {attrs["id"] for tag, attrs in outline(html).tags if tag == "section"}
        assert sections == every | more
