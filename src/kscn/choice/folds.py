"""Folds by chance: the same fold for the same row and seed, wherever it is asked for.

Files have an order: sorted by class, the classes in turn, one camera after the other. A fold that
is taken by counting rows (every fifth) follows that order, and may hold a single class or none.
Here a hash of the row's number and the seed decides. It has no state, so that a row of a data set
of any size, on disk, in one of many processes or in a fit that was resumed, is where it has always
been.
"""

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea, Flood 2014): the step between states, and the factors that mix one.
STEP = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31


def folds(rows: Tensor, seed: int, count: int) -> Tensor:
    """Which of `count` folds (up to 2**32) each row is in, independent of its neighbours.

    `rows` are numbers among all samples; another seed shares them out anew.
    """
    return (_random_bits(rows, seed) * count) >> 32


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
