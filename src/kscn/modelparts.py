"""Checks of what model files hold: arrays and numbers are what they should be.

What is wrong is said by a ValueError, which the reader of the file turns into a sentence about it.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOATS = ("float32", "float64")
# Of one sample: far above any image, and still little to try a network on.
MOST_VALUES = 2**26


def check_array(
    name: str, array: NDArray, shape: tuple[int | None, ...], types: tuple[str, ...] = FLOATS
) -> None:
    """Refuse an array of another shape (None: any length but 0) or type, or with no numbers."""
    lengths = zip(array.shape, shape, strict=False)
    if array.ndim != len(shape) or not all(n == m if m is not None else n for n, m in lengths):
        told = str(shape).replace("None", "any")
        raise ValueError(f"{name} has shape {array.shape}, expected {told}")
    if array.dtype.name not in types:
        raise ValueError(f"{name} is of type {array.dtype}, expected {' or '.join(types)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity")


def number(facts: Mapping[str, Any], name: str) -> float:
    """A number of the manifest."""
    value = facts[name]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"{name} is {str(value)[:40]!r}, expected a number")
    return float(value)


def integer(facts: Mapping[str, Any], name: str, least: int, most: int = 2**62) -> int:
    """An integer of the manifest within limits."""
    value = facts[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} is {str(value)[:40]!r}, expected an integer from {least} on")
    return value


def shape_of(facts: Mapping[str, Any], name: str = "input_shape") -> tuple[int, ...]:
    """The shape of one sample, as the manifest has it."""
    value = facts[name]
    if not isinstance(value, list) or not 1 <= len(value) <= 8:
        raise ValueError(f"{name} is {str(value)[:40]!r}, expected a list of lengths")
    shape = tuple(integer({name: length}, name, 1) for length in value)
    if math.prod(shape) > MOST_VALUES:
        raise ValueError(f"its samples have {math.prod(shape)} values")
    return shape


def plain(value: Any) -> Any:
    """Numpy's scalars and arrays, tuples and mappings as what JSON can hold."""
    if value is None or isinstance(value, (str, bool)) or callable(value):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return np.asarray(value).tolist()
