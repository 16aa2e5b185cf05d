"""What the cells of a text table are: numbers, words or neither; and what follows for its columns.

A column is numeric or holds labels. A cell that fits neither, such as an empty one, NA or 1_000, is
never a reason to take a row for names or a column for labels.
"""

from __future__ import annotations

import re
from enum import Enum

from kscn.data.dataset import LABEL_COLUMNS

_MISSING = {
    "", "?", ".", "-", "--", "na", "n/a", "n.a.", "#n/a", "<na>", "nan", "none", "null", "nil",
    "missing",
}  # fmt: skip
# Numbers as people write them, which no parser reads alike: 1_000, 1'000, 1.000,5, 1.2.3, 5 %.
_NUMERAL = re.compile(r"(?=\D*\d)[+-]?[\d_.,' ]*(e[+-]?\d+)?%?")


class Kind(Enum):
    """What a cell is."""

    NUMBER = "number"
    WORD = "word"
    NEITHER = "neither"


def is_number(cell: str) -> bool:
    """Whether a cell is a number as programs write it, nan and inf included."""
    try:
        float(cell)
    except ValueError:
        return False
    return plain(cell)


def plain(cell: str) -> bool:
    """Whether what `float` accepts is no 1_000 and has no digits of other scripts."""
    return "_" not in cell and cell.isascii()


def kind(cell: str) -> Kind:
    """What a cell is; a missing value and a number in a notation of people are neither."""
    word = cell.strip().lower()
    if word in _MISSING:
        return Kind.NEITHER
    if is_number(cell):
        return Kind.NUMBER
    return Kind.NEITHER if _NUMERAL.fullmatch(word) else Kind.WORD


def is_header(head: list[str], second: list[str] | None) -> bool:
    """Whether the first row of a table holds names, given the second.

    Words alone are names. Beside numbers that merely count the columns, as pandas writes them, or
    beside missing cells they are names if one of them says label or stands above a number.
    """
    kinds = [kind(cell) for cell in head]
    numbers = [cell.strip() for cell, k in zip(head, kinds, strict=True) if k is Kind.NUMBER]
    counting = [[str(i + first) for i in range(len(numbers))] for first in (0, 1)]
    if numbers and numbers not in counting:
        return False
    below = [kind(cell) for cell in second or []]
    indexed = not head[0].strip() and len(head) > 1
    if Kind.NEITHER not in kinds[indexed:] and Kind.WORD in kinds and not numbers:
        return True
    if indexed and len(numbers) == len(head) - 1:
        return below[:1] == [Kind.NUMBER]  # a row index and columns without names
    return any(
        k is Kind.WORD and (_says_label(cell) or under is Kind.NUMBER)
        for cell, k, under in zip(head, kinds, [*below, *[None] * len(head)], strict=False)
    )


def label_column(header: list[str] | None, first: list[str]) -> tuple[int | None, bool]:
    """The column of labels, if there is one, and whether its name says so.

    Otherwise it is the last column, if the first sample has a word there.
    """
    for column, name in enumerate(header or []):
        if _says_label(name):
            return column, True
    return (len(first) - 1 if kind(first[-1]) is Kind.WORD else None), False


def unfit_label(labels: list[str], named: bool) -> str | None:
    """A label that does not go with the others, if there is one.

    In a column that is not called label, labels are words throughout. In one that is they may also
    be numbers, or both, but none may be missing.
    """
    kinds = [kind(label) for label in labels]
    for label, k in zip(labels, kinds, strict=True):
        if not named and k is not Kind.WORD:
            return label
        # NA may be the name of a class beside other names, hardly beside numbers.
        missing = k is Kind.NEITHER and Kind.NUMBER in kinds and Kind.WORD not in kinds
        if missing or not label.strip():
            return label
    return None


def _says_label(name: str) -> bool:
    return name.strip().lower() in LABEL_COLUMNS
