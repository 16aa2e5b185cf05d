"""What the terminal can show, and the few ways in which the commands draw on it."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click


@dataclass(frozen=True)
class Terminal:
    """Abilities of an output stream.

    Attributes
    ----------
    blocks : bool
        Whether block characters can be written, i.e. the stream speaks Unicode.
    colours : bool
        Whether 256 colours can be shown: a terminal, unless NO_COLOR is set or FORCE_COLOR is.
    width : int
        Columns.
    """

    blocks: bool
    colours: bool
    width: int

    @classmethod
    def of(cls, stream: TextIO | None = None) -> "Terminal":
        """Look at a stream (stdout) and the environment."""
        stream = sys.stdout if stream is None else stream
        blocks = (getattr(stream, "encoding", None) or "ascii").lower().startswith("utf")
        capable = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        colours = bool(os.environ.get("FORCE_COLOR")) or (
            capable and not os.environ.get("NO_COLOR")
        )
        return cls(blocks, blocks and colours, _columns(stream))

    def bar(self, share: float, width: int) -> str:
        """A bar that fills `share` of `width` columns, to an eighth of a column."""
        if not self.blocks:
            return "#" * round(share * width)
        full, eighths = divmod(round(share * width * 8), 8)
        return "█" * full + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")

    def style(self, text: str, **style: Any) -> str:
        """Text in colour where there is colour."""
        return click.style(text, **style) if self.colours else text

    def say(self, text: str = "") -> None:
        """Print a line; colours pass because `style` has decided on them already."""
        click.echo(text, color=self.colours)


def _columns(stream: TextIO) -> int:
    if os.environ.get("COLUMNS", "").isdigit():
        return max(40, int(os.environ["COLUMNS"]))
    try:
        return max(40, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return 80


def duration(seconds: float) -> str:
    """Time for people: 0.31 s, 12.4 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Lines of a plain table: first column to the left, numbers to the right."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return [
        indent
        + "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
