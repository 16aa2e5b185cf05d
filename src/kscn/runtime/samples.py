"""Samples and their features as all processes need them: some of all, or all of their own."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kscn.data import Source, as_source
from kscn.features import FeatureChain
from kscn.features.base import check_finite
from kscn.runtime.blocks import Blocks, held, working_dtype
from kscn.runtime.group import Group, own_rows, place
from kscn.runtime.rows import sample_rows

# Features of the samples of a process up to this size are kept; others are computed when read.
KEEP_BYTES = 2**29


def held_features(
    chain: FeatureChain, source: Source, group: Group, described: Source | None = None
) -> Source:
    """The features of this process's samples, in memory if they fit.

    `described` is what the first step of the chain says of them, if that is known.
    """
    found = chain.source(source) if described is None else chain.rest().source(described)
    if len(source) * 4 * int(np.prod(found.shape)) <= KEEP_BYTES:
        found = as_source(held(found, chain.device), name=found.name)
    return group.holding(found)


def sample(source: Source, rows: NDArray, device: torch.device, group: Group) -> Tensor:
    """These rows of all that the processes hold, (m, d), in every process."""
    blocks = Blocks(source, working_dtype(source.dtype), device)
    return group.gather(blocks.take(own_rows(source, rows)))


def raw_sample(source: Source, most: int, seed: int, group: Group) -> tuple[NDArray, NDArray]:
    """At most so many samples as they are stored: their numbers, and them (m, *shape)."""
    rows = sample_rows(place(source)[1], most, seed)
    own = source.take(own_rows(source, rows))
    check_finite(own, source.name)
    single = working_dtype(own.dtype) == torch.float32
    return rows, group.gather(torch.from_numpy(own.astype("f4" if single else "f8"))).numpy()
