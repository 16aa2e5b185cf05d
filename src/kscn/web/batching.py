"""Requests that arrive together are computed together.

A model takes hardly longer for a hundred samples than for one. The first request waits a few
milliseconds for company; while one batch is computed, in a thread so that the loop stays free, the
next one gathers by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kscn.errors import KscnError
from kscn.web.limits import busy

# Numbers waiting to be computed; above this, clients are asked to come back.
_MOST_BYTES = 256 * 2**20

Answers = tuple[NDArray, ...]


@dataclass
class _Request:
    samples: NDArray
    answer: asyncio.Future[Answers]


class MicroBatcher:
    """Answers of `run`, computed for many requests at once.

    Parameters
    ----------
    run : callable
        From samples (n, ...) to a tuple of arrays of length n, each row independent of the others.
    most_rows : int
        Samples computed at once; a single request may hold more.
    wait : float
        Seconds that the first request waits for others.
    on_batch : callable, optional
        Called with the requests and samples of every batch.
    """

    def __init__(
        self,
        run: Callable[[NDArray], Answers],
        *,
        most_rows: int = 512,
        wait: float = 0.003,
        on_batch: Callable[[int, int], None] | None = None,
    ) -> None:
        self._run = run
        self._most_rows = most_rows
        self._wait = wait
        self._on_batch = on_batch
        self._waiting: deque[_Request] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        # One thread: a model is not made for two at once, and torch spreads over cores by itself.
        self._thread = ThreadPoolExecutor(1, "kscn-model")

    async def submit(self, samples: NDArray) -> Answers:
        """The answers to one request's samples."""
        if self._waiting and self._bytes + samples.nbytes > _MOST_BYTES:
            raise busy()
        loop = asyncio.get_running_loop()
        request = _Request(samples, loop.create_future())
        self._waiting.append(request)
        self._bytes += samples.nbytes
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._drain())
        return await request.answer

    async def _drain(self) -> None:
        await asyncio.sleep(self._wait)
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._next()
            if self._on_batch is not None and batch:
                self._on_batch(len(batch), sum(len(request.samples) for request in batch))
            try:
                results = await loop.run_in_executor(
                    self._thread, self._answers, [request.samples for request in batch]
                )
            except BaseException as error:
                for request in batch:
                    if not request.answer.done():
                        request.answer.set_exception(
                            error if isinstance(error, Exception) else RuntimeError("stopped")
                        )
                if not isinstance(error, Exception):
                    raise
                continue
            for request, result in zip(batch, results, strict=True):
                if request.answer.done():  # the client has gone
                    continue
                if isinstance(result, KscnError):
                    request.answer.set_exception(result)
                else:
                    request.answer.set_result(result)

    def _next(self) -> list[_Request]:
        """Requests of one type from the front: another type's rounding must not leak into them."""
        batch: list[_Request] = []
        rows = 0
        while self._waiting:
            request = self._waiting[0]
            full = rows + len(request.samples) > self._most_rows
            if batch and (full or request.samples.dtype != batch[0].samples.dtype):
                break
            self._waiting.popleft()
            self._bytes -= request.samples.nbytes
            if not request.answer.done():
                batch.append(request)
                rows += len(request.samples)
        return batch

    def _answers(self, batch: Sequence[NDArray]) -> list[Answers | KscnError]:
        """One result per request; a request at fault does not spoil the others."""
        if not batch:
            return []
        try:
            joined = self._run(np.concatenate(batch))
        except KscnError as error:
            if len(batch) == 1:
                return [error]
            return [result for samples in batch for result in self._answers([samples])]
        cuts = np.cumsum([len(samples) for samples in batch])[:-1]
        pieces = [np.split(column, cuts) for column in joined]
        return [tuple(column[i] for column in pieces) for i in range(len(batch))]
