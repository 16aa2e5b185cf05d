"""Samples in random order, read as the source likes to be read, ahead of the time of need.

A permutation of single samples is the worst that can happen to a disk. Where neighbours are better
read together, whole stretches are drawn at random instead, a window of many is read in the order of
the file, and the samples in it are shuffled. Nearby samples then come in the same window, but a
window holds stretches from everywhere: one of every part of the file, so that in a file sorted by
class every window has the classes in the shares that they have in all. What fits into one window is
shuffled exactly.

While one window is used up, a thread reads the next.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np

from kscn.data.base import Source

# Of so many places at least, however long the source's stretches: a file sorted by class would else
# come a class at a time. A longer one is unpacked more than once.
PLACES = 8

Item = TypeVar("Item")
Batch = tuple[np.ndarray, np.ndarray]  # indices, rows
Window = tuple[np.ndarray, np.ndarray, np.ndarray]  # indices, rows, the order to take them in


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, each made in a thread while the one before is used.

    An error comes out in the place of its item, and the thread ends with the loop, however that
    ends.
    """
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="kscn-read") as thread:
        coming = thread.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, source, None)
            yield item
            del item  # or two windows would be held while the third is awaited


def in_one_window(source: Source) -> bool:
    """Whether a source has no stretches, or few enough to be shuffled exactly."""
    return len(source) * source.row_bytes <= source.window_bytes or source.stretches() is None


def shuffled_exactly(source: Source, order: np.ndarray, sizes: Iterable[int]) -> Iterator[Batch]:
    """Batches of the given sizes in the order given, where `in_one_window` holds of the source."""
    if source.stretches() is None:
        ends = np.cumsum([0, *sizes])
        pieces = (order[low:high] for low, high in pairwise(ends))
        batches = ((rows, source.take(rows)) for rows in pieces)
        yield from read_ahead(batches) if source.on_disk else batches
    else:  # not a batch at a time: each would touch every stretch
        everything = _load(source, np.array([[0, len(source)]]))
        yield from _deal([(*everything, order)], sizes)


def shuffled_in_windows(
    source: Source, seed: int, sizes: Iterable[int], first: int = 0
) -> Iterator[Batch]:
    """Batches of the given sizes in an order that depends on the seed alone.

    They begin at place `first` of that order, for others may take the rest of it.
    """
    yield from _deal(read_ahead(_shuffled_windows(source, seed, first)), sizes)


def _shuffled_windows(source: Source, seed: int, first: int) -> Iterator[Window]:
    generator = np.random.default_rng(seed)
    for stretches in _windows(source, generator):
        order = generator.permutation(int(np.diff(stretches).sum()))
        if first < len(order):
            yield (*_load(source, stretches), order[first:])
        first = max(0, first - len(order))


def _windows(source: Source, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """All stretches (start, stop), each once, in random groups of about `window_bytes`."""
    cuts, row_bytes, window_bytes = source.stretches(), source.row_bytes, source.window_bytes
    assert cuts is not None
    most = max(1, window_bytes // (PLACES * row_bytes))  # rows of a stretch; longer ones are cut
    long = np.flatnonzero(np.diff(cuts) > most)
    more = [np.arange(cuts[i] + most, cuts[i + 1], most) for i in long]
    cuts = np.sort(np.concatenate([cuts, *more]))
    stretches = np.stack([cuts[:-1], cuts[1:]], axis=1)
    # As many neighbours as there are windows go to one each, in random order.
    count = -(-int(cuts[-1]) * row_bytes // window_bytes)
    parts = np.tile(np.arange(count), (-(-len(stretches) // count), 1))
    turn = generator.permuted(parts, axis=1).reshape(-1)[: len(stretches)]
    stretches = stretches[np.lexsort((generator.random(len(stretches)), turn))]
    window = np.cumsum(np.diff(stretches)) * row_bytes // (window_bytes + 1)
    for group in np.split(stretches, np.flatnonzero(np.diff(window)) + 1):
        yield group[np.argsort(group[:, 0])]  # so that a file is read forwards


def _load(source: Source, stretches: np.ndarray) -> Batch:
    rows = np.concatenate([np.arange(start, stop) for start, stop in stretches])
    values = np.empty((len(rows), *source.shape), dtype=source.dtype)
    filled = 0
    for start, stop in stretches.tolist():
        values[filled : filled + stop - start] = source[start:stop]
        filled += stop - start
    return rows, values


def _deal(windows: Iterable[Window], sizes: Iterable[int]) -> Iterator[Batch]:
    """Batches from windows; one may begin in a window and end in another."""
    wanted = iter(sizes)
    missing = next(wanted, 0)
    parts: list[Batch] = []
    for indices, values, order in windows:
        used = 0
        while used < len(order):
            some = order[used : used + missing]
            parts.append((indices[some], values[some]))
            used += len(some)
            missing -= len(some)
            if missing == 0:
                found, rows = zip(*parts, strict=True)
                yield (np.concatenate(found), np.concatenate(rows)) if len(parts) > 1 else parts[0]
                missing, parts = next(wanted, 0), []
                if missing == 0:
                    return
        del indices, values, order  # before the next window is awaited
