"""Small grey images as text: two pixels, one above the other, in every character.

In colour the half block shows both pixels in 24 greys; without colour the pair is drawn in black
and white by half blocks, and where not even those can be written, by ASCII.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kscn.cli.terminal import Terminal

if TYPE_CHECKING:
    import numpy as np

# Characters for (upper, lower) pixel: neither, lower, upper, both.
_BLOCKS = " ▄▀█"
_ASCII = " .'#"
_FIRST_GREY, _GREYS = 232, 24  # the grey ramp of the 256-colour palette


def thumbnail(terminal: Terminal, image: "np.ndarray") -> list[str]:
    """Lines of one image (h, w) with values from 0 to 1; h / 2 lines of w columns."""
    pairs = [zip(image[i], image[i + 1], strict=True) for i in range(0, len(image) - 1, 2)]
    if terminal.colours:
        return ["".join(_coloured(upper, lower) for upper, lower in pair) for pair in pairs]
    marks = _BLOCKS if terminal.blocks else _ASCII
    return ["".join(marks[2 * (u >= 0.5) + (v >= 0.5)] for u, v in pair) for pair in pairs]


def _coloured(upper: float, lower: float) -> str:
    up, low = (_FIRST_GREY + min(_GREYS - 1, int(value * _GREYS)) for value in (upper, lower))
    return click.style("▀", fg=up, bg=low, reset=False)


def strip(images: Sequence[list[str]], terminal: Terminal, gap: str = " ") -> list[str]:
    """Thumbnails side by side."""
    reset = "\x1b[0m" if terminal.colours else ""
    return [(reset + gap).join(lines) + reset for lines in zip(*images, strict=True)]
