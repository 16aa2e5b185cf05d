"""What the terminal can show, and the few ways in which the commands draw on it."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click

_COLOUR = re.compile(r"(\x1b\[[\d;]*m)")
# What `str.isprintable` refuses but names may hold: spaces that do not break, and joined letters.
_HARMLESS = "\u00a0\u202f\u3000\u200c\u200d"


@dataclass(frozen=True)
class Terminal:
    """Abilities of an output stream."""

    blocks: bool  # block characters can be written, i.e. the stream speaks Unicode
    colours: bool  # 256 of them: a terminal, unless NO_COLOR is set or FORCE_COLOR is
    width: int
    errors: bool = False  # it is stderr

    @classmethod
    def of(cls, stream: TextIO | None = None) -> "Terminal":
        """Look at a stream (stdout) and the environment."""
        stream = sys.stdout if stream is None else stream
        blocks = (stream.encoding or "ascii").lower().startswith("utf")
        capable = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        refused, forced = os.environ.get("NO_COLOR"), os.environ.get("FORCE_COLOR")
        colours = bool(forced) or (capable and not refused)
        width = max(40, shutil.get_terminal_size().columns)
        return cls(blocks, blocks and colours, width, stream is sys.stderr)

    @classmethod
    def beside(cls, output: Path | None) -> "Terminal":
        """Look at stdout, or at stderr where stdout is the file that a command writes."""
        return cls.of(sys.stderr if output is not None and _is_stdout(output) else sys.stdout)

    def bar(self, share: float, width: int) -> str:
        """A bar that fills `share` of `width` columns, to an eighth of a column."""
        if not self.blocks:
            return "#" * round(share * width)
        full, eighths = divmod(round(share * width * 8), 8)
        return "█" * full + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")

    def style(self, text: str, **style: Any) -> str:
        """Text in colour where there is colour."""
        text = printable(text)
        return click.style(text, **style) if self.colours else text

    def say(self, *lines: str) -> None:
        """Print lines; of control characters only those of `style` pass."""
        for line in lines:
            parts = _COLOUR.split(line) if self.colours else [line]
            parts[::2] = map(printable, parts[::2])
            click.echo("".join(parts), err=self.errors, color=self.colours)


def printable(text: str) -> str:
    """A text without power over the terminal: control characters as Python would write them.

    Names of files, classes and data sets may hold escape sequences, which move the cursor, rename
    the window or hide what follows; and marks that turn the direction of writing around.
    """
    return "".join(
        c if c.isprintable() or c in _HARMLESS else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def complain(sentence: str) -> None:
    """Print a line about a fault on stderr, under the name of the program."""
    click.echo(f"kscn: {printable(sentence)}", err=True)


def _is_stdout(path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # neither has to exist
        return False


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Lines of a plain table: first column to the left, numbers to the right."""
    lines = [[printable(cell) for cell in line] for line in (header, *rows)]
    name_width, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
    return [
        indent + "  ".join([name.ljust(name_width), *map(str.rjust, cells, widths)]).rstrip()
        for name, *cells in lines
    ]
