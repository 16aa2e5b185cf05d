"""What a parameter may be, as data: alternatives of which it has to meet one.

They stand in a table of the class, as scikit-learn's `_parameter_constraints`, or where the class
is a dataclass, beside the default:

    keep: float = parameter(1.0, Number(0, 1, closed="both"))
    weight: float | None = parameter(None, POSITIVE)
    init: str = parameter("k-subspaces", "k-means")

An alternative is an `Integer`, a `Number`, an `Array`, a type, a word or None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

import numpy as np

from kscn.errors import InputError


@dataclass(frozen=True)
class Number:
    """A finite number from `low` to `high`; `closed` says which ends are part of the interval."""

    low: float
    high: float = math.inf
    closed: str = "left"
    kind: ClassVar[Any] = Real
    word: ClassVar[str] = "a number"

    def allows(self, value: Any) -> bool:
        """Whether a value meets this; True and False are no numbers."""
        if isinstance(value, bool) or not isinstance(value, self.kind):
            return False
        from_low = value >= self.low if self.closed in ("left", "both") else value > self.low
        to_high = value <= self.high if self.closed in ("right", "both") else value < self.high
        return from_low and to_high

    def __str__(self) -> str:
        low = "of at least" if self.closed in ("left", "both") else "above"
        high = "at most" if self.closed in ("right", "both") else "below"
        end = "" if self.high == math.inf else f" and {high} {self.high}"
        return f"{self.word} {low} {self.low}{end}"


class Integer(Number):
    """An integer that is not below `low`."""

    kind, word = Integral, "an integer"


@dataclass(frozen=True)
class Array:
    """Anything that may be an array of something; what it holds is looked at with the samples."""

    of: str

    def allows(self, value: Any) -> bool:
        """Whether a value may be one."""
        return value is not None and not isinstance(value, str)

    def __str__(self) -> str:
        return f"an array of {self.of}"


POSITIVE = Number(0, closed="neither")
# Types are bool, str and os.PathLike.
Alternative = Number | Array | type | str | None
T = TypeVar("T")


def parameter(default: T, *alternatives: Alternative) -> T:
    """A field of a dataclass; a default that is None or a word is an alternative by itself."""
    if default not in alternatives and (default is None or isinstance(default, str)):
        alternatives = (default, *alternatives)
    return field(default=default, metadata={"alternatives": alternatives})


def check_parameters(estimator: Any) -> None:
    """Refuse a value of a dataclass that meets none of the alternatives of its field."""
    for one in fields(estimator):
        if "alternatives" in one.metadata:
            check_value(one.name, getattr(estimator, one.name), one.metadata["alternatives"])


def check_names(given: Iterable[Any], known: Iterable[str], where: str) -> None:
    """Refuse a name that is not known, with a hint at the one that may be meant."""
    known = sorted(known)
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}."
            raise InputError(f"{where} {name!r}, which it cannot; {hint}")


def check_value(name: str, value: Any, alternatives: Sequence[Alternative]) -> None:
    """Refuse a value that meets none of the alternatives, in a sentence that names them all."""
    if not any(_allows(alternative, value) for alternative in alternatives):
        *most, last = [word for alternative in alternatives for word in _words(alternative)]
        listed = f"{', '.join(most)} or {last}" if most else last
        raise InputError(f"{name}={value!r} must be {listed}.")


def _allows(alternative: Alternative, value: Any) -> bool:
    if isinstance(alternative, (Number, Array)):
        return alternative.allows(value)
    if isinstance(alternative, type):
        return isinstance(value, (bool, np.bool_) if alternative is bool else alternative)
    # An array would answer for each of its elements.
    return isinstance(value, (str, type(None))) and value == alternative


def _words(alternative: Alternative) -> list[str]:
    if alternative is bool:
        return ["True", "False"]
    if isinstance(alternative, type):
        return ["a string" if alternative is str else "a path"]
    return [str(alternative) if isinstance(alternative, (Number, Array)) else repr(alternative)]
