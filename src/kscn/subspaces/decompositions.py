"""Decompositions of matrices on the CPU, by one thread each.

LAPACK shares out one decomposition among threads in thousands of small steps. On a quiet machine
that gains a third; on a busy one the threads wait for each other in every step, and it takes 10 to
180 times as long. Whole matrices side by side gain more and do not wait. What is found does not
depend on the number of threads either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from kscn.parallel import side_by_side

LARGE = 128  # columns from which on a decomposition takes longer than to start a thread


def eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (..., d), rising, and eigenvectors (..., d, d) of symmetric matrices."""
    *batch, d, _ = matrices.shape
    if len(batch) == 0 or d < LARGE or matrices.device.type != "cpu":
        with _one_thread(matrices):
            values, vectors = torch.linalg.eigh(matrices)
        return values, vectors
    parts = matrices.flatten(end_dim=-3).chunk(torch.get_num_threads())
    found = list(side_by_side(torch.linalg.eigh, parts, matrices.device, each=1))
    values, vectors = (torch.cat(part) for part in zip(*found, strict=True))
    return values.view(*batch, d), vectors.view(matrices.shape)


def eigvalsh(matrices: Tensor) -> Tensor:
    """Eigenvalues (..., d) of symmetric matrices, rising."""
    with _one_thread(matrices):
        return torch.linalg.eigvalsh(matrices)


def orthonormal(matrices: Tensor) -> Tensor:
    """An orthonormal basis (..., d, p) of the columns of (..., d, p): the Q of QR."""
    with _one_thread(matrices):
        return torch.linalg.qr(matrices).Q


@contextmanager
def _one_thread(matrices: Tensor) -> Iterator[None]:
    threads = torch.get_num_threads()
    if threads == 1 or matrices.device.type != "cpu":
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
