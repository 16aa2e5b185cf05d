"""What a parameter may be, as data: alternatives of which its value has to meet one.

`{"keep": [Number(0, 1, closed="both")], "weight": [None, Number(0, closed="neither")]}` says it in
the way of scikit-learn's `_parameter_constraints`. An alternative is an `Integer`, a `Number`, a
type, a word or None.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from kscn.errors import InputError


@dataclass(frozen=True)
class Integer:
    """An integer that is not below `least`."""

    least: int

    def allows(self, value: Any) -> bool:
        """Whether a value meets this; True and False are no integers."""
        return _is_a(Integral, value) and value >= self.least

    def __str__(self) -> str:
        return f"an integer of at least {self.least}"


@dataclass(frozen=True)
class Number:
    """A finite number from `low` to `high`; `closed` says which ends are part of the interval."""

    low: float
    high: float = math.inf
    closed: str = "left"

    def allows(self, value: Any) -> bool:
        """Whether a value meets this; True and False are no numbers."""
        if not _is_a(Real, value) or not math.isfinite(value):
            return False
        from_low = value >= self.low if self.closed in ("left", "both") else value > self.low
        to_high = value <= self.high if self.closed in ("right", "both") else value < self.high
        return from_low and to_high

    def __str__(self) -> str:
        low = "of at least" if self.closed in ("left", "both") else "above"
        high = "at most" if self.closed in ("right", "both") else "below"
        end = "" if self.high == math.inf else f" and {high} {self.high}"
        return f"a number {low} {self.low}{end}"


Alternative = Integer | Number | type | str | None
Constraints = Mapping[str, Sequence[Alternative]]


def check_value(name: str, value: Any, alternatives: Sequence[Alternative]) -> None:
    """Refuse a value that meets none of the alternatives, in a sentence that names them all."""
    if not any(_allows(alternative, value) for alternative in alternatives):
        *most, last = map(_words, alternatives)
        listed = f"{', '.join(most)} or {last}" if most else last
        raise InputError(f"{name}={value!r} must be {listed}.")


def _is_a(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _allows(alternative: Alternative, value: Any) -> bool:
    if isinstance(alternative, (Integer, Number)):
        return alternative.allows(value)
    if alternative is bool:
        return isinstance(value, (bool, np.bool_))
    if isinstance(alternative, type):
        return isinstance(value, alternative)
    if alternative is None:
        return value is None
    return isinstance(value, str) and value == alternative


def _words(alternative: Alternative) -> str:
    special: dict[Any, str] = {bool: "True or False", str: "a string", os.PathLike: "a path"}
    if isinstance(alternative, type):
        return special.get(alternative, f"a {alternative.__name__}")
    return (
        repr(alternative)
        if alternative is None or isinstance(alternative, str)
        else str(alternative)
    )
