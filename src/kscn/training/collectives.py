"""Sums over all processes, as the messages of a training step need them: soon."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

# Bytes of all processes together up to which everyone gets everything and adds up for itself.
GATHERED = 2**20


def add_up(tensor: Tensor) -> None:
    """Replace a contiguous tensor by its sum over all processes, the same in each of them.

    gloo's all_reduce passes pieces around twice. For a few numbers what counts is the number of
    rounds, and a gather has half of them: 0.7 ms instead of 1.8 between two processes of one
    machine, ten times per step of a network with BatchNorm.
    """
    size = dist.get_world_size()
    if tensor.is_cuda or size * tensor.numel() * tensor.element_size() > GATHERED:
        dist.all_reduce(tensor)
        return
    parts = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(parts, tensor)
    tensor.copy_(parts[0])
    for part in parts[1:]:  # in the same order everywhere, so that rounding is the same too
        tensor += part
