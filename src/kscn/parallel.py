"""Threads: one for little work, and independent pieces of work side by side.

Threads within a small product mostly wait for each other; whole pieces side by side do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")
# Operations of a pass: beside other work, threads wait for each other longer than this takes.
LITTLE = 1e8

# A forked child has none of the threads of OpenMP, and would wait for them forever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

# The libraries beside torch that have threads; looking for them takes tens of milliseconds.
libraries = cache(ThreadpoolController)


@contextmanager
def one_thread() -> Iterator[None]:
    """Work on little, for which threads take longer to wait for each other than to do it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with libraries().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)


def threads_for(work: float) -> AbstractContextManager[None]:
    """All threads for passes of so many operations; one where each would mostly wait."""
    return one_thread() if work < LITTLE else nullcontext()


def side_by_side(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    device: torch.device,
    each: int | None = None,
) -> Generator[Result]:
    """The results of `work` for all items, in their order, as they come.

    As many are worked on at a time as torch has threads, which share them evenly, or `each` by so
    many. On a device other than the CPU they follow one another.
    """
    threads = torch.get_num_threads()
    count = max(1, min(threads, len(items)))
    own = each or threads // count
    if device.type != "cpu" or (count == 1 and own == threads):
        yield from map(work, items)
        return
    gradients = torch.is_grad_enabled()  # which holds for the caller's thread only

    def begin() -> None:
        # Of this thread only, and for as long as it lives.
        torch.set_grad_enabled(gradients)
        torch.set_num_threads(own)
        libraries().limit(limits=own, user_api="openmp")

    pool = ThreadPoolExecutor(count, initializer=begin)
    try:
        # The threads of numpy's products are those of the whole process.
        with libraries().limit(limits=own, user_api="blas"):
            yield from pool.map(work, items)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        torch.set_num_threads(threads)  # new threads take the number that was set last
