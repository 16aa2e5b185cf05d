"""Real pages in a real browser: the system's Chromium, driven by Playwright."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kscn.cli import cli

# Debian calls it chromium; other systems have other names.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SHORT = (
    "--subspace-dim",
    3,
    "--pretrain-epochs",
    30,
    "--epochs",
    4,
    "--batch-size",
    64,
    "--n-init",
    1,
)


@pytest.fixture(scope="session")
def browser():
    """Chromium, or a reason why these tests cannot run."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="the Python package playwright is not installed"
    )
    path = os.environ.get("KSCN_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium found; apt-get install chromium, or set KSCN_CHROMIUM to one")
    with sync_api.sync_playwright() as playwright:
        # The sandbox needs rights that containers do not give; the pages are our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    """Where screenshots go: KSCN_ARTIFACTS, or a temporary directory."""
    given = os.environ.get("KSCN_ARTIFACTS")
    directory = Path(given) if given else tmp_path_factory.mktemp("artifacts")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _call(*args):
    result = CliRunner().invoke(cli, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """Pages of four small runs, by kind: labelled, unlabelled, refined, vectors."""
    from kscn import data

    directory = tmp_path_factory.mktemp("reports")
    digits = data.load("digits")
    rows = np.arange(0, len(digits.samples), 5)  # 360 images
    images = digits.samples.take(rows)
    np.savez(directory / "labelled.npz", X=images, y=digits.labels[rows])
    np.save(directory / "unlabelled.npy", images)
    rng = np.random.default_rng(0)
    planes, _, _ = data.make_union_of_subspaces(150, 3, 6, 2, noise=0.01, random_state=0)
    names = ["height", "width", "depth", "weight", "<b>bold</b>", "a name that goes on " * 4]
    body = "\n".join(",".join(f"{value:.4f}" for value in row) for row in rng.permutation(planes))
    (directory / "vectors.csv").write_text(",".join(names) + "\n" + body + "\n")
    pages = {}
    for kind, file, options in (
        ("labelled", "labelled.npz", ("-k", 10, "--method", "kscn-s", *SHORT)),
        ("unlabelled", "unlabelled.npy", ("-k", 4, "--method", "k-subspaces", "--n-init", 1)),
        ("refined", "unlabelled.npy", ("-k", 4, "--epochs", 2)),
        ("vectors", "vectors.csv", ("-k", 3, "--method", "k-subspaces", "--subspace-dim", 2)),
    ):
        run = directory / kind
        with pytest.MonkeyPatch.context() as patch:
            # Neither the choice of features nor the method of the map is what is looked at.
            patch.setattr("kscn.report.map._tsne", lambda: None)
            _call("fit", directory / file, "-o", run, "--seed", 0, *options)
            _call("report", run)
        pages[kind] = run / "report.html"
    return pages


class Visit:
    """An open page with everything it complained about or asked the network for."""

    def __init__(self, page):
        self.page = page
        self.complaints, self.requests = [], []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: self.requests.append(request.url))

    def places(self):
        """Requests for anything but the page itself and what is written in it."""
        return [url for url in self.requests if not url.startswith(("file:", "data:"))]


@pytest.fixture
def visit(browser, reports):
    """visit(kind, **context options) -> Visit of that report; closed after the test."""
    contexts = []

    def open_page(kind, **options):
        options.setdefault("viewport", {"width": 1200, "height": 900})
        context = browser.new_context(**options)
        contexts.append(context)
        made = Visit(context.new_page())
        made.page.goto(reports[kind].as_uri())
        made.page.wait_for_selector("#plot[data-renderer]")
        return made

    yield open_page
    for context in contexts:
        context.close()
