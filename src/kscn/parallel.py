"""Independent pieces of work, one per thread at a time.

Threads within a small product mostly wait for each other; whole pieces side by side do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Result = TypeVar("Result")
# Operations of a pass: beside other work, threads wait for each other longer than this takes.
LITTLE = 1e8
Apply = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]

# A forked child has none of the threads of OpenMP, and would wait for them forever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


@contextmanager
def one_thread() -> Iterator[None]:
    """Work on little, for which threads take longer to wait for each other than to do it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
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
) -> Iterator[Result]:
    """The results of `work` for all items, in their order, as they come.

    As many are worked on at a time as torch has threads, which share them evenly, or `each` by so
    many. On a device other than the CPU they follow one another.
    """
    with workers(device, len(items), each) as apply:
        yield from apply(work, items)


@contextmanager
def workers(
    device: torch.device, most: int | None = None, each: int | None = None
) -> Iterator[Apply]:
    """What `side_by_side` does, for items that come in many lots: threads are started once.

    `most` is how many items there are at a time, if that is known.
    """
    threads = torch.get_num_threads()
    count = 1 if device.type != "cpu" else threads if most is None else min(threads, most)
    if count <= 1 and each is None:
        yield map
        return
    each = each or threads // count
    inference = torch.is_inference_mode_enabled()  # which holds for the caller's thread
    gradients = torch.is_grad_enabled()

    def begin() -> None:
        # Of this thread only, and for as long as it lives.
        torch.set_num_threads(each)
        threadpool_limits(each, user_api="openmp")

    def apply(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        def alone(item: Item) -> Result:
            with (
                torch.inference_mode(inference),
                torch.set_grad_enabled(gradients and not inference),
            ):
                return work(item)

        return pool.map(alone, items)

    try:
        # The threads of numpy's products are those of the whole process.
        with (
            threadpool_limits(each, user_api="blas"),
            ThreadPoolExecutor(count, initializer=begin) as pool,
        ):
            yield apply
    finally:
        torch.set_num_threads(threads)  # new threads take the number that was set last
