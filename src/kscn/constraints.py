"""What values may be, as data: parameters of an estimator, and what a file holds.

A parameter has to meet one of several alternatives, each a `Test` or `Number`, a word or None. They
stand in a table or, where the class is a dataclass, beside the default:

    keep: float = parameter(1.0, Number(0, 1, closed="both"))
    weight: float | None = parameter(None, POSITIVE)
    init: str = parameter("k-subspaces", "k-means")

What TOML or JSON holds, which anybody may have written or damaged, has to follow a rule: a dict of
rules by name for a table, where names with a question mark are optional; a list of one rule for a
list of anything that it allows; or a `Test` or `Number`.

Parameters are not checked by scikit-learn's `_param_validation`, because that is private.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

from kscn.errors import InputError


@dataclass(frozen=True)
class Test:
    """A test of a value, and what it asks for."""

    words: str
    allows: Callable[[Any], bool]

    def __str__(self) -> str:
        return self.words


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
        end = "" if self.high == type(self).high else f" and {high} {self.high}"
        return f"{self.word} {low} {self.low}{end}"


@dataclass(frozen=True)
class Integer(Number):
    """An integer of 64 bits that is not below `low`."""

    high: float = 2**63
    kind, word = Integral, "an integer"


POSITIVE = Number(0, closed="neither")
NUMBER = Test("a number", lambda value: type(value) in (int, float))  # or NaN
# By name, so that numpy is not imported for its own.
FLAG = Test("True or False", lambda value: type(value).__name__ in ("bool", "bool_"))
TEXT = Test("a text", lambda value: isinstance(value, str))
PATH = Test("a path", lambda value: isinstance(value, (str, os.PathLike)))
FUNCTIONS = Test(
    "a sequence of functions, such as [print]",
    lambda value: isinstance(value, Iterable) and all(map(callable, value)),
)
Alternative = Number | Test | str | None
T = TypeVar("T")


def array_of(what: str) -> Test:
    """Anything that may be an array of something; what it holds is looked at with the samples."""
    return Test(
        f"an array of {what}", lambda value: value is not None and not isinstance(value, str)
    )


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


def check_value(name: str, value: Any, alternatives: Sequence[Alternative]) -> None:
    """Refuse a value that meets none of the alternatives, in a sentence that names them all."""
    if not any(_meets(value, one) for one in alternatives):
        *most, last = [str(o) if isinstance(o, (Number, Test)) else repr(o) for o in alternatives]
        listed = f"{', '.join(most)} or {last}" if most else last
        raise InputError(f"{name}={value!r} must be {listed}.")


def _meets(value: Any, alternative: Alternative) -> bool:
    if isinstance(alternative, (Number, Test)):
        return alternative.allows(value)
    # An array would answer for each of its elements.
    return isinstance(value, (str, type(None))) and value == alternative


def check_table(value: Any, rule: Any, name: str = "") -> None:
    """Raise ValueError about the first thing that a rule does not allow; `name` is its place."""
    if isinstance(rule, dict):
        require(isinstance(value, dict), _fault(name, value, "a table"))
        for key, inner in rule.items():
            entry = key.removesuffix("?")
            if entry == key or value.get(entry) is not None:
                check_table(value.get(entry), inner, f"{name}.{entry}" if name else entry)
    elif isinstance(rule, list):
        require(isinstance(value, list), _fault(name, value, "a list"))
        for item in value:
            check_table(item, rule[0], name)
    else:
        require(rule.allows(value), _fault(name, value, str(rule)))


def require(fine: bool, fault: str) -> None:
    """Raise ValueError with what is wrong unless all is fine."""
    if not fine:
        raise ValueError(fault)


def _fault(name: str, value: Any, words: str) -> str:
    found = "is missing" if value is None else f"is {reprlib.repr(value)}"
    return f"{name or 'it'} {found}, not {words}"
