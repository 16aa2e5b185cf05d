"""Random damage: changes of bytes, and of values in a JSON document."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

EXTREMES = [0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53,
            2**62, 2**63 - 1, 2**63, 2**64 - 1]  # fmt: skip
ODD_CELLS = ["", "NA", "nan", "-nan", "nan(1)", "?", "1_000", "1,5", "1.2.3", "5%", "word",
             "label", "0", "inf", "0x10", "1e400", " 7 ", "\u0663", "\xa01", '"', '"a b"', '""',
             "'", "#", "\r", "\n", str(2**63), str(2**53 + 1), "\ufeff"]  # fmt: skip
ODD_SHAPES = [b"(True, True)", b"(12, True)", b"(2**62, 0)", b"(0x0c, 5)", b"(12.0,)"]
STRANGE = [None, True, "", "x" * 10_000, [], {}, [[[]]], -1, 0, 1, 3, 0.5, 1e308, 10**6, 2**31,
           2**63, 10**30, -(2**63), "../../etc/passwd", "é\n", "x", [14_000, 8]]  # fmt: skip


def mutated(content: bytes, rng: random.Random, suffix: str = "") -> bytes:
    """One to four random changes, some of which only files of that suffix know."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        rng.choice(MUTATIONS + SPECIAL.get(suffix, []))(data, rng)
    return bytes(data)


def flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 2, 8]) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def remove(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.choice([1, 4, 16, 64])]


def splice(data: bytearray, rng: random.Random) -> None:
    start, place = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    piece = data[start : start + rng.choice([4, 16, 64, 256])] * rng.choice([1, 1, 1, 500])
    if rng.random() < 0.5:
        data[place : place + len(piece)] = piece
    else:
        data[place:place] = piece


def binary_number(data: bytearray, rng: random.Random) -> None:
    size = rng.choice([1, 2, 4, 8])
    # Most headers are at the front or, in zip and Parquet, at the end.
    place = rng.randrange(min(rng.choice([32, 256, len(data)]), len(data)) + 1)
    place = place if rng.random() < 0.6 else max(0, len(data) - place)
    value = (rng.choice(EXTREMES) + rng.choice([0, 0, -1, 1])) % 2 ** (8 * size)
    data[place : place + size] = value.to_bytes(size, rng.choice(["little", "big"]))


def text_number(data: bytearray, rng: random.Random) -> None:
    values = [*EXTREMES, -1, 10**30, "9" * 5000, "1e999", "nan", "[" * 3000]
    replaced(data, rng, rb"-?\d+", str(rng.choice(values)).encode())


def odd_cell(data: bytearray, rng: random.Random) -> None:
    """A cell of a table that is no plain number; often one of the first rows."""
    replaced(data, rng, rb"[^,;\t\n ]+", rng.choice(ODD_CELLS).encode(), rng.choice([6, 12, 10**9]))


def odd_shape(data: bytearray, rng: random.Random) -> None:
    """Lengths that Python takes for numbers, in the header of a .npy file."""
    replaced(data, rng, rb"\([\d, ]+\)", rng.choice(ODD_SHAPES), 1)


def replaced(
    data: bytearray, rng: random.Random, pattern: bytes, by: bytes, among: int = 10**9
) -> None:
    places = list(re.finditer(pattern, data))[:among]
    if places:
        place = rng.choice(places)
        data[place.start() : place.end()] = by


def change_a_value(tree: Any, rng: random.Random) -> None:
    """Replace or remove something at a random place of a JSON document."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(tree[key], (dict, list)) and rng.random() < 0.85:
            tree = tree[key]
        elif rng.random() < 0.1:
            del tree[key]
            return
        else:
            tree[key] = rng.choice(STRANGE)
            return


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    *(flip_bits, cut, remove, splice, binary_number, binary_number, text_number)
]
SPECIAL = {".csv": [odd_cell] * 14, ".npy": [odd_shape]}
