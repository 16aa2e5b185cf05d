"""Every Python and console block of the README and the pages runs, in order, on small data."""

from pathlib import Path

import pytest
import tinyencoder
from blocks import Block, blocks, commands
from click.testing import CliRunner

from kscn.cli import cli

ROOT = Path(__file__).parents[2]
# The blocks of scaling.md need several processes, which tests/distributed
# starts.
APART = {"scaling.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in PAGES if page.name not in APART]
RUN = {"python", "console"}
# Commands that last; a free port takes the place of the one on the page.
SERVERS, ADDRESS = {"explore", "serve"}, "127.0.0.1:8000"


def runnable(page):
    return [b for b in blocks(page.read_text(encoding="utf-8")) if b.run and b.language in RUN]


@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda page: page.stem)
def test_blocks_run(page, few_digits, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.stem == "photographs":  # which begins with a folder and an encoder of the reader's
        monkeypatch.setenv("KSCN_CACHE", str(tmp_path / "cache"))
        tinyencoder.write_folder("photos", tinyencoder.photographs()[0])
        tinyencoder.write("encoder.onnx")
    names, address = {"__name__": page.stem}, ADDRESS
    for block in runnable(page):
        if block.language == "python":
            # Empty lines before it, so that a traceback names the line of the page.
            text = "\n" * (block.line - 1) + block.text.replace(ADDRESS, address)
            exec(compile(text, str(page), "exec"), names)
        else:
            for args in commands(block):
                if args[0] in SERVERS:
                    address = server(args)
                    continue
                result = CliRunner().invoke(cli, args)
                assert result.exit_code == 0, f"{page.name}: kscn {args}: {result.output}"


def test_pages_have_blocks_to_run():
    with_blocks = {page.stem for page in PAGES if runnable(page)}
    assert {"README", "quickstart", "after-a-run", "choosing", "data", "coming-from"} <= with_blocks
    assert "photographs" in with_blocks


def test_blocks_are_found_with_language_line_and_mark():
    page = "a\n```python\nx = 1\n\ny = 2\n```\n<!-- not run: slow -->\n\n"
    page += "```console\n$ kscn demo\n```\n```{image} a.svg\n:width: 1rem\n```\n"
    assert blocks(page) == [
        Block("python", "x = 1\n\ny = 2", 3, True),
        Block("console", "$ kscn demo", 10, False),
        Block("{image}", ":width: 1rem", 13, True),
    ]


def test_commands_are_those_after_the_prompt():
    block = Block("console", "$ kscn fit 'a b' -k 3\noutput\n$ kscn info run", 1, True)
    assert list(commands(block)) == [["fit", "a b", "-k", "3"], ["info", "run"]]
    with pytest.raises(ValueError, match="only kscn is run, not rm"):
        list(commands(Block("console", "$ rm x", 1, True)))


def test_a_block_without_an_end_is_an_error():
    with pytest.raises(ValueError, match="line 3 has no end"):
        blocks("a\n```python\nx = 1\n")
