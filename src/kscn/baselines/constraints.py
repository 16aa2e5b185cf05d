"""What a parameter may be, as data beside its default: alternatives of which it has to meet one.

    keep: float = parameter(1.0, Number(0, 1, closed="both"))
    weight: float | None = parameter(None, POSITIVE)
    init: str = parameter("k-subspaces", "k-means")

An alternative is an `Integer`, a `Number`, a type, a word or None, as in scikit-learn's
`_parameter_constraints`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, TypeVar

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


POSITIVE = Number(0, closed="neither")
# Types are bool, str and os.PathLike.
Alternative = Integer | Number | type | str | None
T = TypeVar("T")


def parameter(default: T, *alternatives: Alternative) -> T:
    """A field of a dataclass; a default that is None or a word is an alternative by itself."""
    if default is None or isinstance(default, str):
        alternatives = (default, *alternatives)
    return field(default=default, metadata={"alternatives": alternatives})


def check_parameters(estimator: Any) -> None:
    """Refuse a parameter that meets none of its alternatives; those without may be anything."""
    for one in fields(estimator):
        if "alternatives" in one.metadata:
            check_value(one.name, getattr(estimator, one.name), one.metadata["alternatives"])


def check_value(name: str, value: Any, alternatives: Sequence[Alternative]) -> None:
    """Refuse a value that meets none of the alternatives, in a sentence that names them all."""
    if not any(_allows(alternative, value) for alternative in alternatives):
        *most, last = [word for alternative in alternatives for word in _words(alternative)]
        listed = f"{', '.join(most)} or {last}" if most else last
        raise InputError(f"{name}={value!r} must be {listed}.")


def _allows(alternative: Alternative, value: Any) -> bool:
    if isinstance(alternative, (Integer, Number)):
        return alternative.allows(value)
    if isinstance(alternative, type):
        return isinstance(value, (bool, np.bool_) if alternative is bool else alternative)
    if alternative is None:
        return value is None
    return isinstance(value, str) and value == alternative


def _words(alternative: Alternative) -> list[str]:
    if alternative is bool:
        return ["True", "False"]
    if isinstance(alternative, type):
        return ["a string" if alternative is str else "a path"]
    return [str(alternative) if isinstance(alternative, (Integer, Number)) else repr(alternative)]


def _is_a(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
