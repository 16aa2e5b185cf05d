"""Rows drawn by chance, and the samples in them, the same in all processes."""

import zlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source
from kscn.runtime.blocks import Blocks, check_finite, working_dtype
from kscn.runtime.device import CPU
from kscn.runtime.group import Group, own_rows, place


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
    check_finite(samples, source.name, rows)
    return rows, samples.reshape(-1, *source.shape)


def generator(seed: int, *key: int | str) -> torch.Generator:
    """A generator that depends on the seed and on what it draws: ("order", stage, epoch), say."""
    numbers = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
    (state,) = np.random.SeedSequence([seed, *numbers]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state) >> 1)
