"""What a file of TOML or JSON may hold, and must, which anybody may have written or damaged.

A rule is a table, as a dict of rules by name, those with a question mark being optional; a list of
anything that one rule allows; or a test, with the words that a message has for it.
"""

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Test(NamedTuple):
    """A test of a value, and what it asks for."""

    words: str
    passes: Callable[[Any], bool]


TEXT = Test("a text", lambda value: isinstance(value, str))
FLAG = Test("true or false", lambda value: isinstance(value, bool))
NUMBER = Test("a number", lambda value: type(value) in (int, float))


def integer(least: int) -> Test:
    """An integer of 64 bits that is not below the least one."""
    return Test(
        f"an integer from {least}", lambda value: type(value) is int and least <= value < 2**63
    )


def number(least: float, most: float = math.inf) -> Test:
    """A number between two, which neither NaN nor infinity is."""
    words = f"a number from {least:g}" + (f" to {most:g}" if math.isfinite(most) else "")
    return Test(
        words,
        lambda value: NUMBER.passes(value) and least <= value <= most and math.isfinite(value),
    )


def check(value: Any, rule: Any, name: str) -> None:
    """Raise ValueError about the first thing that a rule does not allow; `name` is its place."""
    if isinstance(rule, dict):
        require(isinstance(value, dict), _fault(name, value, "a table"))
        for key, inner in rule.items():
            entry = key.removesuffix("?")
            if entry == key or value.get(entry) is not None:
                check(value.get(entry), inner, f"{name}.{entry}" if name else entry)
    elif isinstance(rule, list):
        require(isinstance(value, list), _fault(name, value, "a list"))
        for item in value:
            check(item, rule[0], name)
    elif not rule.passes(value):
        raise ValueError(_fault(name, value, rule.words))


def require(fine: bool, fault: str) -> None:
    """Raise ValueError with what is wrong unless all is fine."""
    if not fine:
        raise ValueError(fault)


def _fault(name: str, value: Any, words: str) -> str:
    found = "is missing" if value is None else f"is {reprlib.repr(value)}"
    return f"{name or 'it'} {found}, not {words}"


def plain(value: Any) -> Any:
    """Numpy's scalars and arrays, tuples and mappings as what JSON can hold."""
    if value is None or isinstance(value, (str, bool)) or callable(value):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


def part(tensors: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The tensors under `name.`, without that prefix."""
    start = f"{name}."
    return {key.removeprefix(start): v for key, v in tensors.items() if key.startswith(start)}
