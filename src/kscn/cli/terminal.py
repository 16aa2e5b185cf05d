"""What commands print: lines, tables and bars by rich, and no power over the terminal for names."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.atomicfile import is_stdout

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# What `str.isprintable` refuses but names may hold: spaces that do not break, and joined letters.
_HARMLESS = "\u00a0\u202f\u3000\u200c\u200d"
# Paths and tables are to be copied, so they are never broken at the width of the terminal.
_ENDLESS = 10_000


def console(output: Path | None = None) -> "Console":
    """Where results are printed: stdout, or stderr if stdout is the file that a command writes."""
    from rich.console import Console

    return Console(
        stderr=output is not None and is_stdout(output),
        width=_ENDLESS,
        soft_wrap=True,
        markup=False,
        emoji=False,
        highlight=False,
    )


def say(*items: Any, output: Path | None = None) -> None:
    """Print lines and what rich draws; `output` is the file that the command writes, if it does."""
    target = console(output)
    for item in items:
        target.print(printable(item) if isinstance(item, str) else item)


def styled(text: str, style: str) -> "Text":
    """A line in a style of rich, where the terminal has such."""
    from rich.text import Text

    return Text(printable(text), style)


def table(*headers: str) -> "Table":
    """A plain table: the first column to the left, figures to the right."""
    from rich.table import Table

    made = Table(box=None, pad_edge=True, padding=(0, 0, 0, 2), header_style="")
    for number, header in enumerate(headers):
        made.add_column(printable(header), justify="right" if number else "left")
    return made


def printable(text: str) -> str:
    """A text without power over the terminal: control characters as Python would write them.

    Names of files, classes and data sets may hold escape sequences, which move the cursor, rename
    the window or hide what follows; and marks that turn the direction of writing around. rich
    passes them on.
    """
    return "".join(
        c if c.isprintable() or c in _HARMLESS else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def complain(sentence: str) -> None:
    """Print a line about a fault on stderr, under the name of the program."""
    click.echo(f"kscn: {printable(sentence)}", err=True)
