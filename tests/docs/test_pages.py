"""The pages as a whole: the strict build, links, pictures, figures."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.slow
def test_the_strict_build_passes(tmp_path):
    pytest.importorskip("sphinx")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html",
         "-d", tmp_path / "doctrees", DOCS, tmp_path / "html"],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "html" / "cli.html").read_text(encoding="utf-8")
    assert "--subspace-dim" in page  # the reference is that of the real command
    assert "subspaces_" in (tmp_path / "html" / "api.html").read_text(encoding="utf-8")


def drawing(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_picture_is_what_its_script_draws():
    script = drawing("draw_assign_update")
    assert script.PICTURE.read_text(encoding="utf-8") == script.draw()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_table_of_contents():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {line for block in re.findall(r"```\{toctree\}(.*?)```", index, re.S)
              for line in block.split("\n")}  # fmt: skip
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")}
    assert pages - {"index"} <= listed


def test_weights_on_the_page_are_those_of_the_presets():
    from kscn.estimators.defaults import kscn_settings

    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    cases = {
        "images": ("paper", (28, 28)),
        "images of 28 x 28": ("tuned", (28, 28)),
        "images of 8 x 8": ("tuned", (8, 8)),
        "vectors": ("tuned", (64,)),
    }
    for title, (preset, shape) in cases.items():
        found = kscn_settings(shape, 70_000, 10, {"preset": preset})
        assert f"| `{preset}` | {title} | {found['weight']:g} | {found['loss']} |" in page
