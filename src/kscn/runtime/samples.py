"""Samples and their features as all processes need them: some of all, or all of their own."""

from __future__ import annotations

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kscn.data import Source
from kscn.nn.scaling import check_finite
from kscn.runtime.blocks import Blocks, working_dtype
from kscn.runtime.group import Group, own_rows, place
from kscn.runtime.lazy import Lazy, kept
from kscn.runtime.rows import sample_rows


def held_features(
    steps: nn.ModuleList,
    source: Source,
    device: torch.device,
    group: Group,
    described: Source | None = None,
) -> Source:
    """What steps make of this process's samples, in memory if it fits.

    `described` is what all steps but the last make of them, if that is known.
    """
    steps.to(device)
    if described is not None:
        source, steps = described, steps[-1:]
    return group.holding(kept(Lazy(source, steps, device)))


def sample(source: Source, rows: NDArray, device: torch.device, group: Group) -> Tensor:
    """These rows of all that the processes hold, (m, d), in every process."""
    blocks = Blocks(source, working_dtype(source.dtype), device)
    return group.gather(blocks.take(own_rows(source, rows)))


def raw_sample(source: Source, most: int, seed: int, group: Group) -> tuple[NDArray, NDArray]:
    """At most so many samples as they are stored: their numbers, and them (m, *shape)."""
    rows = sample_rows(place(source)[1], most, seed)
    own = source.take(own_rows(source, rows))
    check_finite(own, source.name, own_rows(source, rows) + place(source)[0])
    single = working_dtype(own.dtype) == torch.float32
    return rows, group.gather(torch.from_numpy(own.astype("f4" if single else "f8"))).numpy()
