"""Rows shared out by chance: the same fold for the same row and seed, wherever it is asked for.

Files have an order: sorted by class, the classes in turn, one camera after the other. A fold or a
sample that is taken by counting rows (every fifth, the first thousand) follows that order, and may
hold a single class or none. Here a hash of the row's number and the seed decides. It has no state,
so that a row of a data set of any size, on disk, in one of many processes or in a fit that was
resumed, is where it has always been.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source
from kscn.runtime.blocks import Blocks, check_numbers, working_dtype
from kscn.runtime.device import CPU
from kscn.runtime.group import Group, own_rows, place

# SplitMix64 (Steele, Lea, Flood 2014): the step between states, and the factors that mix one.
STEP = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31


def folds(rows: Tensor, seed: int, count: int) -> Tensor:
    """Which of `count` folds (up to 2**32) each row is in, independent of its neighbours.

    `rows` are numbers among all samples; another seed shares them out anew.
    """
    return (_random_bits(rows, seed) * count) >> 32


def sample_rows(n: int, most: int, seed: int) -> NDArray:
    """At most so many row numbers of n, drawn by the seed, in order; memory goes by `most`."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False, shuffle=False))


def sample(source: Source, rows: NDArray, device: torch.device, group: Group) -> Tensor:
    """These rows of all that the processes hold, (m, d), in every process."""
    blocks = Blocks(source, working_dtype(source.dtype), device)
    return group.gather(blocks.take(own_rows(source, rows)))


def raw_sample(source: Source, most: int, seed: int, group: Group) -> tuple[NDArray, NDArray]:
    """At most so many samples as they are stored: their numbers, and them (m, *shape)."""
    rows = sample_rows(place(source)[1], most, seed)
    samples = sample(source, rows, CPU, group).numpy()
    check_numbers(samples, source.name, rows)
    return rows, samples.reshape(-1, *source.shape)


def generator(seed: int, *key: int | str) -> torch.Generator:
    """A generator that depends on the seed and on what it draws: ("order", stage, epoch), say."""
    numbers = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
    (state,) = np.random.SeedSequence([seed, *numbers]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state) >> 1)


def _random_bits(rows: Tensor, seed: int) -> Tensor:
    """32 random bits per row: those of SplitMix64, begun at the mixed seed, after `row` steps."""
    begin = int(_mixed(torch.tensor(_signed(seed))))
    return _shifted(_mixed(rows * _signed(STEP) + begin), 32)


def _mixed(state: Tensor) -> Tensor:
    """SplitMix64's output for a state, with int64 that wraps around where 64 bits are full."""
    for shift, factor in MIX:
        state = (state ^ _shifted(state, shift)) * _signed(factor)
    return state ^ _shifted(state, LAST_SHIFT)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Shifted to the right as if unsigned."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _signed(bits: int) -> int:
    """The int64 with the same 64 bits."""
    return (bits + 2**63) % 2**64 - 2**63
