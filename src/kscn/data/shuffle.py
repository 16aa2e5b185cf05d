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
Batch = tuple[np.ndarray, np.ndarray]  # the numbers of samples, and these


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
    # Not a batch at a time where there are stretches: each would touch every one of them.
    rows_of = source.take if source.stretches() is None else source[:].__getitem__
    batches = ((rows, rows_of(rows)) for rows in np.split(order, np.cumsum([*sizes])[:-1]))
    yield from read_ahead(batches) if source.on_disk else batches


def shuffled_in_windows(
    source: Source, seed: int, sizes: Iterable[int], first: int = 0
) -> Iterator[Batch]:
    """Batches of the given sizes in an order that depends on the seed alone.

    They begin at place `first` of that order, for others may take the rest of it.
    """
    ends, place = np.cumsum([*sizes]), 0
    begun: list[Batch] = []  # of a batch that ends in another window
    for rows, values in read_ahead(_shuffled_windows(source, seed, first)):
        cuts = [0, *(ends[(ends > place) & (ends <= place + len(rows))] - place)]
        for low, high in pairwise(cuts):
            yield _joined([*begun, (rows[low:high], values[low:high])])
            begun = []
        place += len(rows)
        if place >= ends[-1]:
            return
        begun.append((rows[cuts[-1] :].copy(), values[cuts[-1] :].copy()))
        del rows, values  # before the next window is awaited


def _joined(parts: list[Batch]) -> Batch:
    rows, values = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(values)


def _shuffled_windows(source: Source, seed: int, first: int) -> Iterator[Batch]:
    """All samples, a window at a time, from place `first` of their order on."""
    generator = np.random.default_rng(seed)
    for stretches in _windows(source, generator):
        rows = np.concatenate([np.arange(start, stop) for start, stop in stretches])
        order = generator.permutation(len(rows))
        if first < len(rows):
            values = np.empty((len(rows), *source.shape), dtype=source.dtype)
            places = np.split(np.argsort(order), np.cumsum(np.diff(stretches))[:-1])
            for (start, stop), here in zip(stretches.tolist(), places, strict=True):
                values[here] = source[start:stop]
            yield rows[order[first:]], values[first:]
        first = max(0, first - len(rows))


def _windows(source: Source, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """All stretches (start, stop), each once, in random groups of about `window_bytes`."""
    cuts, row_bytes, window_bytes = source.stretches(), source.row_bytes, source.window_bytes
    assert cuts is not None
    most = max(1, window_bytes // (PLACES * row_bytes))  # rows of a stretch; longer ones are cut
    pieces = [np.arange(start, stop, most) for start, stop in pairwise(cuts)]
    cuts = np.append(np.concatenate(pieces), cuts[-1])
    stretches = np.stack([cuts[:-1], cuts[1:]], axis=1)
    # As many neighbours as there are windows go to one each, in random order.
    count = -(-int(cuts[-1]) * row_bytes // window_bytes)
    parts = np.tile(np.arange(count), (-(-len(stretches) // count), 1))
    turn = generator.permuted(parts, axis=1).reshape(-1)[: len(stretches)]
    stretches = stretches[np.lexsort((generator.random(len(stretches)), turn))]
    window = np.cumsum(np.diff(stretches)) * row_bytes // (window_bytes + 1)
    for group in np.split(stretches, np.flatnonzero(np.diff(window)) + 1):
        yield group[np.argsort(group[:, 0])]  # so that a file is read forwards
