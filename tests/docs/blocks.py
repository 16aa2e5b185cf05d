"""Code blocks of Markdown pages: which there are, and how they are run.

`python` blocks of a page share one namespace; of `console` blocks, lines that begin with `$ kscn`
are run, those of servers as processes that last until the page ends. A comment
`<!-- not run: why -->` in the line before a block leaves it out.
"""

import re
import shlex
from dataclasses import dataclass

FENCE = re.compile(r"^(```+)(\S*)( .*)?$")  # directives have arguments
NOT_RUN = re.compile(r"^<!-- not run: .+ -->$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its first line in the page, whether to run it."""

    language: str
    text: str
    line: int
    run: bool


def blocks(page):
    """Every fenced block of a page, in order."""
    found, fence, before = [], None, ""
    for number, line in enumerate(page.splitlines(), start=1):
        mark = FENCE.match(line)
        if fence is None and mark:
            fence, language, start, inside = mark[1], mark[2], number + 1, []
            run = not NOT_RUN.match(before)
        elif fence is not None and line.strip() == fence:
            found.append(Block(language, "\n".join(inside), start, run))
            fence = None
        elif fence is not None:
            inside.append(line)
        if line.strip():
            before = line
    if fence is not None:
        raise ValueError(f"the block that begins in line {start} has no end")
    return found


def commands(block):
    """Arguments of every `$ kscn ...` in a console block; any other command must be marked."""
    for line in block.text.splitlines():
        if line.startswith("$ "):
            program, *args = shlex.split(line[2:])
            if program != "kscn":
                raise ValueError(f"line {block.line}: only kscn is run, not {program}")
            yield args
